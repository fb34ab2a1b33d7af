//! Stores that take their time, or do not answer.

use std::time::Duration;

use tokio::time::Instant;
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer};
use tower_mq_delivery::{Drain, Message, Outcome};
use tower_mq_testing::{Gated, gate};

use super::{Remote, Source};
use crate::{Dedup, DedupLayer, Store, StoreDown};

type Stack = Dedup<Gated<Message>, Remote>;

/// Runs it in a task of its own.
fn spawn(
    stack: &mut Stack,
    message: Message,
) -> tokio::task::JoinHandle<Result<Outcome, tower_mq_delivery::BoxError>> {
    tokio::spawn(stack.call(message))
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_first_and_the_service_that_was_ready_is_called() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    // One place: a service that must be made ready again would wait for ever.
    let mut stack = ServiceBuilder::new()
        .layer(DedupLayer::new(store.clone()))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(handler);
    let first = tokio::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    assert_eq!(gate.waiting(), 0, "nothing is handled before the store has answered");
    gate.next().await.answer(Outcome::Ack);
    assert_eq!(first.await.expect("no panic").expect("an outcome"), Outcome::Ack);
    let twin = stack.ready().await.expect("ready").call(source.message("a"));
    assert_eq!(twin.await.expect("an outcome"), Outcome::Ack);
    assert_eq!((store.asked(), gate.waiting(), source.events()), (2, 0, vec!["duplicate"]));
    stack.ready().await.expect("its place is free");
}

#[tokio::test(start_paused = true)]
async fn a_twin_asks_again_until_the_other_process_has_ended() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    let mut stack: Stack = DedupLayer::new(store.clone()).layer(handler);
    let (id, lease) = store.begin_elsewhere("a");
    let twin = spawn(&mut stack, source.message("a"));
    let (other, other_lease) = store.begin_elsewhere("b");
    let handled = spawn(&mut stack, source.message("b"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!((150..250).contains(&store.asked()), "each ten times a second: {}", store.asked());
    drop(store.finish(id, lease));
    store.forget(other, other_lease);
    assert_eq!(twin.await.expect("no panic").expect("an outcome"), Outcome::Ack);
    gate.next().await.answer(Outcome::reject("late"));
    assert_eq!(handled.await.expect("no panic").expect("an outcome"), Outcome::reject("late"));
    assert_eq!(source.events(), ["duplicate"]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_another_process_or_for_the_store_is_released_by_a_drain() {
    for down in [false, true] {
        let (source, (handler, gate)) = (Source::new(), gate());
        let store = Remote::new();
        let mut stack: Stack = DedupLayer::new(store.clone()).layer(handler);
        let _elsewhere = store.begin_elsewhere("a");
        store.set_down(down);
        let twin = spawn(&mut stack, source.message("a"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        source.generation.origin().start_drain(Drain::Finish);
        assert_eq!(twin.await.expect("no panic").expect("an outcome"), Outcome::Release);
        assert_eq!((gate.waiting(), began.elapsed()), (0, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_a_message_is_handled_if_so_decided_and_it_is_reported() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    let mut stack: Stack = DedupLayer::new(store.clone()).on_store_error(StoreDown::Handle).layer(handler);
    store.set_down(true);
    for _ in 0..2 {
        let call = spawn(&mut stack, source.message("a"));
        gate.next().await.answer(Outcome::Ack);
        assert_eq!(call.await.expect("no panic").expect("an outcome"), Outcome::Ack);
        assert_eq!(source.events(), ["store failed"]);
    }
    store.set_down(false);
    let call = spawn(&mut stack, source.message("a"));
    gate.next().await.answer(Outcome::Ack);
    assert_eq!(call.await.expect("no panic").expect("an outcome"), Outcome::Ack);
    assert!(source.events().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_the_store_a_message_waits_for_it_and_keeps_no_place() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    let limited = ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(1)).service(handler);
    let mut other = limited.clone();
    let mut stack = DedupLayer::new(store.clone()).layer(limited);
    store.set_down(true);
    let call = tokio::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(source.events().len() > 100);
    assert_eq!(gate.waiting(), 0);
    let place = tokio::time::timeout(Duration::from_secs(1), other.ready()).await;
    place.expect("there is a place").expect("ready");
    drop(other);
    store.set_down(false);
    gate.next().await.answer(Outcome::Ack);
    assert_eq!(call.await.expect("no panic").expect("an outcome"), Outcome::Ack);
}

#[tokio::test(start_paused = true)]
async fn patience_with_the_store_ends() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    let mut stack: Stack = DedupLayer::new(store.clone()).layer(handler);
    store.set_down(true);
    let began = Instant::now();
    let call = tokio::time::timeout(Duration::from_secs(3600), spawn(&mut stack, source.message("a")));
    let outcome = call.await.expect("it ends").expect("no panic").expect("an outcome");
    assert_eq!(outcome, Outcome::Release);
    // From the first error on.
    assert_eq!(began.elapsed(), Duration::from_millis(300_001));
    assert_eq!(gate.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_the_end_changes_no_outcome_and_is_reported() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    let mut stack: Stack = DedupLayer::new(store.clone()).layer(handler);
    let call = spawn(&mut stack, source.message("a"));
    let running = gate.next().await;
    store.set_down(true);
    running.answer(Outcome::Ack);
    assert_eq!(call.await.expect("no panic").expect("an outcome"), Outcome::Ack);
    assert_eq!(source.events(), ["store failed"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_by_the_time_that_the_store_answers_is_not_handled() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    let mut stack: Stack = DedupLayer::new(store.clone()).layer(handler);
    let mut call = task::spawn(stack.call(source.message("a")));
    assert_pending!(call.poll());
    source.generation.end();
    assert_eq!(call.await.expect("an outcome"), Outcome::Release);
    assert_eq!((gate.waiting(), source.events()), (0, vec!["not handled"]));
    assert!(store.0.memory.is_empty(), "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_holds_up_nobody_who_is_dropped() {
    let (source, (handler, gate)) = (Source::new(), gate());
    let store = Remote::new();
    store.set_silent();
    let mut stack: Stack = DedupLayer::new(store.clone()).layer(handler);
    let call = stack.call(source.message("a"));
    tokio::time::timeout(Duration::from_secs(5), call).await.expect_err("it never answers");
    assert_eq!(gate.waiting(), 0);
}
