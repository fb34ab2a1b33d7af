//! What is tried again, when, and what goes out.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, DynError, Message, Outcome};
use tower_test::mock;

use super::{MS, Source, backoff, error, gated, rejected, text};
use crate::RetryLayer;

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_after_growing_rests_until_it_succeeds() {
    let (source, starts) = (Source::new(), Arc::new(Mutex::new(Vec::new())));
    let begun = starts.clone();
    let handler = service_fn(move |message: Message| {
        begun.lock().push((Instant::now(), message.tries(), message.attempt()));
        let failed = message.tries() < 4;
        async move { if failed { Err("not yet") } else { Ok(()) } }
    });
    let start = Instant::now();
    let answer =
        RetryLayer::in_place(backoff()).attempts(4).layer(handler).oneshot(source.message("a")).await;
    assert_eq!(answer.expect("the fourth try is good"), Outcome::Ack);
    let expected = [(0, 1), (10, 2), (30, 3), (70, 4)];
    assert_eq!(*starts.lock(), expected.map(|(ms, tries)| (start + ms * MS, tries, Some(1))));
    let retried = ["a retried after 10ms", "a retried after 20ms", "a retried after 40ms"];
    assert_eq!(source.heard(), retried);
}

#[tokio::test(start_paused = true)]
async fn after_the_last_try_its_error_goes_out_unchanged() {
    #[derive(Debug)]
    struct Mine(u32);

    impl std::fmt::Display for Mine {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "try {}", self.0)
        }
    }

    impl std::error::Error for Mine {}

    let source = Source::new();
    let message = source.message("a");
    let handler = service_fn(|message: Message| async move { Err::<(), _>(Mine(message.tries())) });
    let answer = RetryLayer::in_place(backoff()).layer(handler).oneshot(message.clone()).await;
    let error = answer.expect_err("it never succeeds");
    assert_eq!(error.downcast_ref::<Mine>().expect("the handler's own").0, 3, "three tries by default");
    assert_eq!((message.tries(), message.attempt()), (3, Some(1)), "and one attempt");
    assert!(message.first_failure().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_decided_is_not_tried_again() {
    let (service, gate) = gated(&RetryLayer::in_place(backoff()));
    let source = Source::new();
    for outcome in [Outcome::Ack, Outcome::Release, Outcome::Retry { after: MS }, Outcome::reject("no")] {
        let mut response = task::spawn(service.clone().oneshot(source.message("a")));
        assert_pending!(response.poll());
        gate.next().await.answer(outcome.clone());
        assert_eq!(assert_ready_ok!(response.poll()), outcome);
    }
    let mut response = task::spawn(service.oneshot(source.message("a")));
    assert_pending!(response.poll());
    gate.next().await.fail(rejected());
    assert_eq!(error(assert_ready!(response.poll())), "never");
    assert!(source.heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_try_waits_until_the_service_is_ready_again() {
    let (mut service, mut handle) = mock::spawn_layer::<Message, (), _>(RetryLayer::in_place(backoff()));
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(Source::new().message("a")));
    assert_pending!(response.poll());
    let (_, first) = handle.next_request().await.expect("called");
    first.send_error("not yet");
    assert_pending!(response.poll());
    tokio::time::advance(11 * MS).await;
    assert!(response.is_woken());
    assert_pending!(response.poll(), "the service is busy");
    handle.allow(1);
    assert!(response.is_woken());
    assert_pending!(response.poll());
    let (again, second) = handle.next_request().await.expect("called again");
    assert_eq!((text(&again), again.tries()), ("a".to_owned(), 2));
    second.send_response(());
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Ack);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_ready_again_ends_the_retry() {
    let (mut service, mut handle) = mock::spawn_layer::<Message, (), _>(RetryLayer::in_place(backoff()));
    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(Source::new().message("a")));
    assert_pending!(response.poll());
    handle.next_request().await.expect("called").1.send_error("not yet");
    assert_pending!(response.poll());
    handle.send_error("gone");
    assert_eq!(error(response.await), "gone");
}

#[tokio::test(start_paused = true)]
async fn what_a_try_holds_is_freed_before_anybody_rests_or_is_told() {
    let held = Arc::new(());
    let (handler_holds, hook_sees) = (held.clone(), Arc::downgrade(&held));
    // This test has one, the service, and its clone for a further try. A try has one more.
    let layer = RetryLayer::in_place(backoff()).attempts(2).on_retry(move |_, _, _| {
        assert_eq!(hook_sees.strong_count(), 3);
    });
    let handler = service_fn(move |_: Message| {
        let holds = handler_holds.clone();
        std::future::poll_fn(move |_| {
            let _holds = &holds;
            std::task::Poll::Ready(Err::<(), _>(BoxError::from("down")))
        })
    });
    let mut service = layer.layer(handler);
    let mut response = task::spawn(service.call(Source::new().message("a")));
    assert_pending!(response.poll());
    tokio::time::advance(11 * MS).await;
    assert_eq!(error(assert_ready!(response.poll())), "down");
    assert_eq!(Arc::strong_count(&held), 3);
}

#[tokio::test(start_paused = true)]
async fn the_hook_is_called_before_each_retry_with_what_it_is_about() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let called = calls.clone();
    let layer = RetryLayer::in_place(backoff())
        .on_retry(move |message, error, after| called.lock().push((text(message), error.to_string(), after)));
    let handler = service_fn(|message: Message| async move {
        Err::<(), BoxError>(format!("try {}", message.tries()).into())
    });
    error(layer.layer(handler).oneshot(Source::new().message("a")).await);
    let expected =
        [("try 1", 10), ("try 2", 20)].map(|(error, ms)| ("a".to_owned(), error.to_owned(), ms * MS));
    assert_eq!(*calls.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn only_what_the_user_wants_retried_is() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = asked.clone();
    let layer = RetryLayer::in_place(backoff()).retry_if(move |error: &DynError| {
        asks.lock().push(error.to_string());
        error.is::<std::io::Error>()
    });
    let handler = service_fn(|message: Message| async move {
        match (message.payload().as_ref(), message.tries()) {
            (b"decided", _) => Err(rejected()),
            (b"mixed", 1) => Err(std::io::Error::other("connection lost").into()),
            _ => Err::<(), BoxError>("no such order".into()),
        }
    });
    let mut service = layer.layer(handler);
    let source = Source::new();
    assert_eq!(error(service.call(source.message("decided")).await), "never");
    assert!(asked.lock().is_empty(), "an error that has decided is nobody's question");
    assert_eq!(error(service.call(source.message("other")).await), "no such order");
    assert!(source.heard().is_empty());
    assert_eq!(error(service.call(source.message("mixed")).await), "no such order");
    assert_eq!(source.heard(), ["mixed retried after 10ms"]);
}

#[tokio::test(start_paused = true)]
async fn further_tries_are_made_by_the_service_as_it_was_left() {
    let handled_by = Arc::new(Mutex::new(Vec::new()));
    let handler = |name: &'static str| {
        let handled_by = handled_by.clone();
        let handler = service_fn(move |_: Message| {
            handled_by.lock().push(name);
            std::future::ready(Err::<(), _>(BoxError::from("down")))
        });
        tower::util::BoxCloneService::new(handler)
    };
    let mut service = RetryLayer::in_place(backoff()).attempts(2).layer(handler("first"));
    let message = Source::new().message("a");
    error(service.call(message.clone()).await);
    *service.get_mut() = handler("second");
    error(service.clone().call(message.clone()).await);
    error(service.call(message).await);
    assert_eq!(*handled_by.lock(), ["first", "first", "second", "second", "second", "second"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_cloned_before_a_rest_but_the_message() {
    struct Counted(Arc<Mutex<u32>>);
    impl Clone for Counted {
        fn clone(&self) -> Self {
            *self.0.lock() += 1;
            Self(self.0.clone())
        }
    }
    let clones = Arc::new(Mutex::new(0));
    let counted = Counted(clones.clone());
    let handler = service_fn(move |message: Message| {
        let _counted = &counted;
        std::future::ready(match message.payload().as_ref() {
            b"good" => Ok(()),
            b"bad" => Err(rejected()),
            _ => Err(BoxError::from("down")),
        })
    });
    let mut service = RetryLayer::in_place(backoff()).attempts(3).layer(handler);
    let source = Source::new();
    let before = *clones.lock();
    assert_eq!(service.call(source.message("good")).await.expect("handled"), Outcome::Ack);
    error(service.call(source.message("bad")).await);
    assert_eq!(*clones.lock(), before);
    error(service.call(source.message("down")).await);
    assert_eq!(*clones.lock(), before + 1, "one for all further tries");
}
