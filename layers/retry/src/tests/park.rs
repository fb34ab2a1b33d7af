//! A message that sleeps, and a worker that does not.

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{Batch, BoxError, Message, Outcome};
use tower_mq_partition::PartitionLayer;
use tower_mq_testing::turn;

use super::{HOUR, MS, Source, backoff, gated, hourly};
use crate::RetryLayer;

#[tokio::test(start_paused = true)]
async fn a_message_is_parked_while_it_rests_and_at_no_other_time() {
    let source = Source::new();
    let (mut service, gate) = gated(&RetryLayer::park(backoff()));
    let (turn, probe) = turn();
    let mut message = source.message("a");
    let _detached = message.set_turn(turn);
    let mut response = task::spawn(service.call(message));
    assert_pending!(response.poll());
    assert!(!probe.is_parked());
    gate.next().await.fail("down");
    assert_pending!(response.poll());
    assert!(probe.is_parked() && !probe.is_passed());
    tokio::time::advance(11 * MS).await;
    assert_pending!(response.poll());
    assert!(!probe.is_parked(), "it runs again");
    gate.next().await.answer(Outcome::Ack);
    response.await.expect("handled");
    assert_eq!(source.heard(), ["a retried after 10ms", "a parked", "a resumed"]);
}

#[tokio::test(start_paused = true)]
async fn in_place_parks_nothing_and_a_batch_is_not_parked() {
    let source = Source::new();
    let (mut service, gate) = gated(&RetryLayer::in_place(backoff()));
    let mut response = task::spawn(service.call(source.message("a")));
    assert_pending!(response.poll());
    gate.next().await.fail("down");
    assert_pending!(response.poll());
    assert_eq!(source.heard(), ["a retried after 10ms"]);

    let (mut service, gate) = gated(&RetryLayer::park(backoff()));
    let mut response = task::spawn(service.call(Batch::from(vec![source.message("b")])));
    assert_pending!(response.poll());
    gate.next().await.fail("down");
    assert_pending!(response.poll());
    assert_eq!(source.heard(), ["b retried after 10ms"]);
}

/// One worker; the first key fails once and rests for an hour. When did the other hundred keys finish?
async fn when_the_others_finish(layer: RetryLayer) -> (Vec<std::time::Duration>, std::time::Duration) {
    let handler = service_fn(|message: Message| async move {
        let failed = message.payload() == "slow" && message.tries() == 1;
        tokio::time::sleep(MS).await;
        if failed { Err(BoxError::from("down")) } else { Ok(()) }
    });
    let mut service = PartitionLayer::per_key(1).layer(layer.layer(handler));
    let (source, start) = (Source::new(), Instant::now());
    let mut responses = Vec::new();
    for n in 0..=100 {
        let text = if n == 0 { "slow".to_owned() } else { n.to_string() };
        let response = service.ready().await.expect("ready").call(source.message(&text));
        responses.push(async move { response.await.map(|_| start.elapsed()) });
    }
    let mut times = join_all(responses).await.into_iter().map(|time| time.expect("handled"));
    let slow = times.next().expect("the slow one");
    (times.collect(), slow)
}

#[tokio::test(start_paused = true)]
async fn a_long_rest_that_is_parked_lets_a_hundred_other_keys_finish_at_once() {
    let (others, slow) = when_the_others_finish(RetryLayer::park(hourly())).await;
    assert_eq!(others.len(), 100);
    assert!(others.iter().all(|time| *time < 1_000 * MS), "{others:?}");
    assert!(slow >= HOUR && slow < HOUR + 1_000 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_long_rest_in_place_holds_up_its_worker() {
    let (others, _) = when_the_others_finish(RetryLayer::in_place(hourly())).await;
    assert!(others.iter().all(|time| *time > HOUR));
}
