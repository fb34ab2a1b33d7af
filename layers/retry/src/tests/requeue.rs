//! Through the broker.

use std::sync::Arc;

use parking_lot::Mutex;
use tower::{Layer, ServiceExt, service_fn};
use tower_mq_delivery::{Batch, BoxError, Capabilities, Failure, Message, MessageBuilder, Outcome, Outcomes};

use super::{MS, Source, backoff, error, rejected, text};
use crate::RetryLayer;

async fn fails(_: Message) -> Result<(), BoxError> {
    Err("down".into())
}

async fn ask(layer: RetryLayer, message: MessageBuilder) -> Result<Outcome, BoxError> {
    layer.layer(service_fn(fails)).oneshot(message.build()).await
}

#[tokio::test(start_paused = true)]
async fn a_failure_goes_back_with_a_delay_that_grows_with_its_attempts_until_they_are_used_up() {
    let attempt = |n| Message::builder("").attempt(n);
    for (n, ms) in [(1, 10), (2, 20), (3, 40), (4, 80)] {
        let outcome = ask(RetryLayer::requeue(backoff()), attempt(n)).await.expect("requeued");
        assert_eq!(outcome, Outcome::Retry { after: ms * MS });
    }
    assert_eq!(error(ask(RetryLayer::requeue(backoff()), attempt(5)).await), "down");
    assert_eq!(error(ask(RetryLayer::requeue(backoff()).attempts(2), attempt(2)).await), "down");
    assert_eq!(error(ask(RetryLayer::requeue(backoff()).attempts(1), attempt(1)).await), "down");
}

#[tokio::test(start_paused = true)]
async fn a_message_of_unknown_count_is_in_its_second_attempt_if_it_was_delivered_before() {
    for (redelivered, ms) in [(false, 10), (true, 20)] {
        let message = Message::builder("").redelivered(redelivered);
        let outcome = ask(RetryLayer::requeue(backoff()), message).await.expect("requeued");
        assert_eq!(outcome, Outcome::Retry { after: ms * MS });
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_handled_once_here_and_the_hook_hears_of_it() {
    let (source, calls) = (Source::new(), Arc::new(Mutex::new(Vec::new())));
    let called = calls.clone();
    let layer = RetryLayer::requeue(backoff())
        .on_retry(move |message, error, after| called.lock().push((text(message), error.to_string(), after)));
    let message = source.message("a");
    layer.layer(service_fn(fails)).oneshot(message.clone()).await.expect("requeued");
    assert_eq!((message.tries(), message.first_failure().is_some()), (1, true));
    assert_eq!(*calls.lock(), [("a".to_owned(), "down".to_owned(), 10 * MS)]);
    assert!(source.heard().is_empty(), "nothing happens in place");
}

#[tokio::test(start_paused = true)]
async fn a_decision_and_an_unwanted_error_are_not_requeued() {
    let layer = RetryLayer::requeue(backoff()).retry_if(|error| error.to_string() != "down");
    assert_eq!(error(ask(layer, Message::builder("").attempt(1)).await), "down");
    let decides = service_fn(|_: Message| async { Err::<(), BoxError>(rejected()) });
    let answer = RetryLayer::requeue(backoff()).layer(decides).oneshot(Source::new().message("a")).await;
    assert!(Failure::find(&*answer.expect_err("decided")).is_some());
}

#[tokio::test(start_paused = true)]
async fn where_a_redelivery_disturbs_others_it_stays_here_and_that_is_said_once() {
    let mut capabilities = Capabilities::unknown();
    capabilities.redelivery_disturbs_others = true;
    let source = Source::of(capabilities);
    let service = RetryLayer::requeue(backoff()).attempts(3).layer(service_fn(fails));
    for _ in 0..2 {
        let message = source.message("a");
        assert_eq!(error(service.clone().oneshot(message.clone()).await), "down");
        assert_eq!(message.tries(), 3);
    }
    let (warnings, rest): (Vec<_>, _) =
        source.heard().into_iter().partition(|heard| heard.starts_with("warned"));
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("retried in place"));
    assert_eq!(rest, ["a retried after 10ms", "a retried after 20ms"].repeat(2), "and nothing is parked");
}

#[tokio::test(start_paused = true)]
async fn each_failed_member_of_a_batch_goes_back_by_its_own_attempts() {
    let attempts = [Some(1), Some(3), None, Some(1), Some(5)];
    let members = attempts.map(|n| match n {
        Some(n) => Message::builder("").attempt(n).build(),
        None => Message::builder("").build(),
    });
    let handler = service_fn(|_: Batch<Message>| async {
        let down = || BoxError::from("down");
        Ok::<_, BoxError>(vec![Err(down()), Err(down()), Ok(()), Err(rejected()), Err(down())])
    });
    let batch = Batch::from(members.to_vec());
    let answer = RetryLayer::requeue(backoff()).layer(handler).oneshot(batch).await.expect("one for each");
    let Outcomes::Each(results) = answer else { panic!("one for each") };
    let told: Vec<_> = results.iter().map(|result| result.as_ref().map_err(ToString::to_string)).collect();
    let retry = |ms| Outcome::Retry { after: ms * MS };
    let (first, second) = (retry(10), retry(40));
    let ack = Outcome::Ack;
    assert_eq!(told, [Ok(&first), Ok(&second), Ok(&ack), Err("never".to_owned()), Err("down".to_owned())]);
}
