//! What becomes of a twin, for every end of the first one.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn,
    util::BoxCloneService,
};
use tower_mq_delivery::{BoxError, Drain, Failure, Message, Outcome, Turns};
use tower_mq_testing::{Gated, gate};

use super::Source;
use crate::{Dedup, DedupLayer, Id};

type Stack = Dedup<Gated<Message>>;

#[tokio::test]
async fn what_was_acked_is_acked_again_and_not_handled() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let mut stack: Stack = DedupLayer::in_memory().layer(handler);
    let mut first = task::spawn(stack.call(source.message("a")));
    assert_pending!(first.poll());
    gate.next().await.answer(Outcome::Ack);
    assert_eq!(assert_ready_ok!(first.poll()), Outcome::Ack);
    assert!(source.events().is_empty());

    let turns = Turns::new();
    let mut message = source.message("a");
    let _detached = message.set_turn(turns.turn(1));
    let mut twin = task::spawn(stack.call(message));
    assert!(turns.take_declined());
    assert_eq!(assert_ready_ok!(twin.poll()), Outcome::Ack);
    assert_pending!(twin.poll(), "it is over");
    assert_eq!((gate.waiting(), source.events()), (0, vec!["duplicate"]));

    let mut other = task::spawn(stack.call(source.message("b")));
    assert_pending!(other.poll());
    assert_eq!(gate.waiting(), 1, "another id is another message");
}

#[tokio::test]
async fn twins_wait_for_the_first_one_and_are_acked_with_it() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let mut stack: Stack = DedupLayer::in_memory().layer(handler);
    let mut first = task::spawn(stack.call(source.message("a")));
    let mut twins = [(); 2].map(|()| task::spawn(stack.call(source.message("a"))));
    assert_pending!(first.poll());
    twins.iter_mut().for_each(|twin| assert_pending!(twin.poll()));
    assert_eq!((gate.waiting(), source.events()), (1, vec![]));
    gate.next().await.answer(Outcome::Ack);
    assert!(twins.iter().all(|twin| !twin.is_woken()), "it has not ended yet");
    assert_ready_ok!(first.poll());
    for twin in &mut twins {
        assert!(twin.is_woken());
        assert_eq!(assert_ready_ok!(twin.poll()), Outcome::Ack);
    }
    assert_eq!((gate.waiting(), source.events()), (0, vec!["duplicate"; 2]));
}

/// Ends the first one like this; then a twin that waits and one that comes later are handled, one after the other.
async fn is_forgotten(end: impl FnOnce(tower_mq_testing::Call<Message>)) -> Result<Outcome, BoxError> {
    let (source, (handler, gate)) = (Source::new(), gate());
    let layer = DedupLayer::in_memory();
    let mut stack: Stack = layer.layer(handler);
    let mut first = task::spawn(stack.call(source.message("a")));
    let [mut second, mut third] = [(); 2].map(|()| task::spawn(stack.call(source.message("a"))));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    end(gate.next().await);
    let answer = assert_ready!(first.poll());
    assert!(second.is_woken() && third.is_woken());
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    assert_eq!(gate.waiting(), 1, "one of them is handled, and the other one waits for it");
    gate.next().await.answer(Outcome::Ack);
    assert_eq!(assert_ready_ok!(second.poll()), Outcome::Ack);
    assert_eq!(assert_ready_ok!(third.poll()), Outcome::Ack);
    assert_eq!((gate.waiting(), source.events()), (0, vec!["duplicate"]));
    answer
}

#[tokio::test]
async fn whatever_is_not_acked_is_forgotten_and_its_twin_is_handled() {
    for outcome in
        [Outcome::Release, Outcome::Retry { after: Duration::from_secs(1) }, Outcome::reject("not good")]
    {
        let answer = is_forgotten(|call| call.answer(outcome.clone())).await;
        assert_eq!(answer.expect("an outcome"), outcome);
    }
    let error = is_forgotten(|call| call.fail(Failure::reject("no such order"))).await.expect_err("an error");
    assert!(error.is::<Failure>(), "it is handed on as it is");
}

#[tokio::test]
async fn a_dead_letter_is_acked_and_forgotten_so_that_it_can_be_sent_back() {
    let outcome = is_forgotten(|call| {
        call.request().set_dead_lettered();
        call.answer(Outcome::Ack);
    });
    assert_eq!(outcome.await.expect("an outcome"), Outcome::Ack);
}

#[tokio::test]
async fn a_panic_is_forgotten_whether_it_comes_in_the_call_or_later() {
    for early in [true, false] {
        let source = Source::new();
        let mut first = true;
        let mut stack = DedupLayer::in_memory().layer(service_fn(move |_: Message| {
            let panics = std::mem::take(&mut first);
            assert!(!(panics && early), "on purpose");
            async move {
                assert!(!panics, "on purpose");
                Ok::<_, BoxError>(())
            }
        }));
        let call = std::panic::AssertUnwindSafe(async {
            stack.ready().await.expect("ready").call(source.message("a")).await
        });
        let panic = futures_catch(call).await;
        assert!(panic.is_err());
        let outcome = stack.ready().await.expect("ready").call(source.message("a")).await;
        assert_eq!((outcome.expect("it is handled"), source.events()), (Outcome::Ack, vec![]));
    }
}

/// Polls it, and catches a panic.
async fn futures_catch<F: Future>(future: F) -> std::thread::Result<F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |cx| {
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

#[tokio::test]
async fn a_message_without_an_id_is_handled_each_time_and_counted() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let mut stack: Stack = DedupLayer::in_memory().layer(handler);
    let mut calls = [(); 2].map(|()| task::spawn(stack.call(source.build().build())));
    calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
    assert_eq!(gate.waiting(), 2);
    assert_eq!(source.events(), ["warned", "unidentified", "unidentified"]);
    gate.next().await.answer(Outcome::Release);
    assert_eq!(assert_ready_ok!(calls[0].poll()), Outcome::Release);
}

#[tokio::test]
async fn ids_of_two_queues_are_told_apart_unless_they_share_a_scope() {
    let sources = ["orders", "returns"].map(Source::called);
    let messages = || {
        let [orders, returns] = &sources;
        [orders.message("a"), returns.message("a"), orders.build().id("a").destination("other").build()]
    };
    for (layer, handled) in [(DedupLayer::in_memory(), 3), (DedupLayer::in_memory().scope("all"), 1)] {
        let (handler, gate) = gate();
        let mut stack: Stack = layer.layer(handler);
        let mut calls = messages().map(|message| task::spawn(stack.call(message)));
        calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
        assert_eq!(gate.waiting(), handled);
    }
    // An id that is called like its queue is not the same as another one that is called like its own.
    assert_ne!(Id::of("orders").within("orders"), Id::of("returns").within("returns"));
}

#[tokio::test]
async fn the_key_is_what_the_user_says() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let layer = DedupLayer::in_memory().key(|message| message.key().map(Id::of));
    let mut stack: Stack = layer.layer(handler);
    let message = |key: &'static str| source.build().id("the same").key(key).build();
    let mut calls = [message("a"), message("b"), message("a"), source.message("the same")]
        .map(|message| task::spawn(stack.call(message)));
    calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
    assert_eq!((gate.waiting(), source.events()), (3, vec!["warned", "unidentified"]));
}

#[tokio::test]
async fn services_of_one_layer_share_what_they_know() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let layer = DedupLayer::in_memory();
    let [mut one, mut two]: [Stack; 2] = [(); 2].map(|()| layer.clone().layer(handler.clone()));
    let mut calls = [task::spawn(one.call(source.message("a"))), task::spawn(two.call(source.message("a")))];
    calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
    assert_eq!((gate.waiting(), layer.store().len()), (1, 1));
}

#[tokio::test]
async fn a_twin_of_a_delivery_whose_connection_was_lost_follows_it() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let mut stack: Stack = DedupLayer::in_memory().layer(handler);
    let mut first = task::spawn(stack.call(source.message("a")));
    assert_pending!(first.poll());
    let next = source.generation.next();
    let again = Message::builder("").id("a").redelivered(true).generation(next).build();
    let mut twin = task::spawn(stack.call(again));
    assert_pending!(twin.poll());
    gate.next().await.answer(Outcome::Ack);
    assert_ready_ok!(first.poll());
    assert_eq!(assert_ready_ok!(twin.poll()), Outcome::Ack);
    assert_eq!(gate.waiting(), 0);
}

#[tokio::test]
async fn a_twin_whose_connection_is_lost_is_not_handled() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let layer = DedupLayer::in_memory();
    let mut stack: Stack = layer.layer(handler);
    let mut first = task::spawn(stack.call(source.message("a")));
    let mut twin = task::spawn(stack.call(source.message("a")));
    assert_pending!(first.poll());
    assert_pending!(twin.poll());
    source.generation.end();
    assert!(twin.is_woken());
    assert_eq!(assert_ready_ok!(twin.poll()), Outcome::Release);
    gate.next().await.answer(Outcome::Ack);
    assert_eq!(assert_ready_ok!(first.poll()), Outcome::Ack, "what runs is finished");
}

#[tokio::test]
async fn a_twin_follows_its_first_one_through_a_drain_and_does_not_start_in_one_that_releases() {
    for drain in [Drain::Finish, Drain::Release] {
        let (source, (handler, gate)) = (Source::new(), gate());
        let layer = DedupLayer::in_memory();
        let mut stack: Stack = layer.layer(handler);
        let mut calls = ["a", "a", "b", "b"].map(|id| task::spawn(stack.call(source.message(id))));
        calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
        source.generation.origin().start_drain(drain);
        calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
        let [a, also_a, b, also_b] = &mut calls;
        gate.next().await.answer(Outcome::Ack);
        assert_ready_ok!(a.poll());
        assert_eq!(assert_ready_ok!(also_a.poll()), Outcome::Ack);
        gate.next().await.answer(Outcome::Release);
        assert_ready_ok!(b.poll());
        assert_eq!(source.events(), ["duplicate"]);
        match drain {
            Drain::Finish => {
                assert_pending!(also_b.poll());
                assert_eq!(gate.waiting(), 1, "what was taken is handled");
            }
            Drain::Release => {
                assert_eq!(assert_ready_ok!(also_b.poll()), Outcome::Release);
                assert_eq!((gate.waiting(), source.events()), (0, vec!["not handled"]));
                assert_eq!(layer.store().len(), 1, "it is forgotten");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_twin_waits_no_longer_than_its_patience() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let mut stack: Stack = DedupLayer::in_memory().patience(Duration::from_secs(7)).layer(handler);
    let mut first = task::spawn(stack.call(source.message("a")));
    assert_pending!(first.poll());
    let began = tokio::time::Instant::now();
    let call = tokio::time::timeout(Duration::from_secs(3600), stack.call(source.message("a")));
    let outcome = call.await.expect("it ends").expect("an outcome");
    assert_eq!((outcome, began.elapsed()), (Outcome::Release, Duration::from_secs(7)));
    gate.next().await.answer(Outcome::Ack);
    assert_eq!(assert_ready_ok!(first.poll()), Outcome::Ack);
}

#[tokio::test]
async fn a_twin_keeps_no_place_under_a_limit_while_it_waits() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let mut stack = ServiceBuilder::new()
        .layer(DedupLayer::in_memory())
        .layer(ConcurrencyLimitLayer::new(2))
        .service(handler);
    let mut first = task::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    assert_pending!(first.poll());
    let mut twin = task::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    assert_pending!(twin.poll());
    // Two places, one in use: this would wait for ever.
    let mut other = task::spawn(stack.ready().await.expect("ready").call(source.message("b")));
    assert_pending!(other.poll());
    gate.next().await.fail("not yet");
    assert_ready!(first.poll()).expect_err("it fails");
    assert!(twin.is_woken());
    drop(first);
    assert_pending!(twin.poll());
    assert_eq!(gate.waiting(), 2, "the twin has waited for its place, and is handled");
}

#[tokio::test]
async fn a_duplicate_leaves_no_place_taken() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let limited = ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(1)).service(handler);
    let mut stack = DedupLayer::in_memory().layer(limited.clone());
    let mut first = task::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    assert_pending!(first.poll());
    gate.next().await.answer(Outcome::Ack);
    assert_ready_ok!(first.poll());
    drop(first);
    let twin = stack.ready().await.expect("ready").call(source.message("a"));
    assert_eq!(twin.await.expect("an outcome"), Outcome::Ack);
    let mut other = limited;
    assert!(other.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[tokio::test]
async fn a_twin_tells_an_open_batch_before_it_that_nothing_more_will_come() {
    // A batch that closes when there is nothing to take; here, of one.
    #[derive(Clone)]
    struct Gathers;
    impl Service<Message> for Gathers {
        type Response = ();
        type Error = BoxError;
        type Future = std::pin::Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, message: Message) -> Self::Future {
            let turn = message.turn().clone();
            turn.pass();
            let mut asked = false;
            Box::pin(std::future::poll_fn(move |cx| {
                if std::mem::replace(&mut asked, true) {
                    return Poll::Ready(Ok(()));
                }
                turn.when_idle(cx.waker());
                Poll::Pending
            }))
        }
    }

    for late in [true, false] {
        let (source, turns) = (Source::new(), Turns::new());
        let [mut one, mut two] = [(); 2].map(|()| source.message("a"));
        let (_one, _two) = (one.set_turn(turns.turn(1)), two.set_turn(turns.turn(2)));
        let mut stack = DedupLayer::in_memory().layer(Gathers);
        let mut first = task::spawn(stack.call(one));
        assert!(turns.is_passed(1));
        if late {
            assert_pending!(first.poll());
        }
        let mut twin = task::spawn(stack.call(two));
        assert!(!turns.is_passed(2), "what comes behind it waits with it");
        assert_pending!(twin.poll());
        if !late {
            assert_pending!(first.poll());
        }
        assert!(first.is_woken());
        assert_ready_ok!(first.poll());
        assert_eq!(assert_ready_ok!(twin.poll()), Outcome::Ack);
    }
}

#[tokio::test]
async fn readiness_that_fails_for_a_twin_is_its_error_and_forgets_it() {
    let (source, layer) = (Source::new(), DedupLayer::in_memory());
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    #[derive(Clone)]
    struct Breaks(Arc<std::sync::atomic::AtomicBool>, BoxCloneService<Message, Outcome, BoxError>);
    impl Service<Message> for Breaks {
        type Response = Outcome;
        type Error = BoxError;
        type Future = <BoxCloneService<Message, Outcome, BoxError> as Service<Message>>::Future;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            match self.0.load(std::sync::atomic::Ordering::Relaxed) {
                true => Poll::Ready(Err("broken".into())),
                false => self.1.poll_ready(cx),
            }
        }
        fn call(&mut self, message: Message) -> Self::Future {
            self.1.call(message)
        }
    }
    let (handler, gate) = gate();
    let mut stack = layer.layer(Breaks(broken.clone(), handler.boxed_clone()));
    let mut first = task::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    let mut twin = task::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    assert_pending!(first.poll());
    assert_pending!(twin.poll());
    broken.store(true, std::sync::atomic::Ordering::Relaxed);
    gate.next().await.answer(Outcome::Release);
    assert_ready_ok!(first.poll());
    assert_eq!(assert_ready!(twin.poll()).expect_err("an error").to_string(), "broken");
    assert!(layer.store().is_empty());
    assert_pending!(twin.poll(), "it is over");
}
