//! Rests that end before their time.

use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Drain, Message, Outcome};
use tower_mq_testing::turn;

use super::{HOUR, Source, gated, hourly};
use crate::RetryLayer;

fn modes() -> [RetryLayer; 2] {
    [RetryLayer::in_place(hourly()), RetryLayer::park(hourly())]
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_rest_with_a_release_at_once() {
    for (layer, drain) in modes().into_iter().flat_map(|l| [(l.clone(), Drain::Finish), (l, Drain::Release)])
    {
        let (source, start) = (Source::new(), tokio::time::Instant::now());
        let (mut service, gate) = gated(&layer);
        let mut response = task::spawn(service.call(source.message("a")));
        assert_pending!(response.poll());
        gate.next().await.fail("down");
        assert_pending!(response.poll());
        source.origin().start_drain(drain);
        assert!(response.is_woken());
        assert_eq!(assert_ready_ok!(response.poll()), Outcome::Release);
        assert!(gate.try_next().is_none() && start.elapsed() < HOUR);
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_while_the_stack_drains_does_not_begin_to_rest() {
    for layer in modes() {
        let source = Source::new();
        source.origin().start_drain(Drain::Finish);
        let (mut service, gate) = gated(&layer);
        let mut response = task::spawn(service.call(source.message("a")));
        assert_pending!(response.poll());
        gate.next().await.fail("down");
        assert_eq!(assert_ready_ok!(response.poll()), Outcome::Release);
        assert!(source.heard().is_empty(), "no retry, no nap");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_leaves_the_last_error_and_a_decision_alone() {
    let source = Source::new();
    source.origin().start_drain(Drain::Finish);
    for (tries, error) in [(1, "down"), (2, "never")] {
        let handler = service_fn(move |_: Message| async move {
            Err::<(), BoxError>(if tries == 1 { "down".into() } else { super::rejected() })
        });
        let layer = RetryLayer::in_place(hourly()).attempts(tries);
        assert_eq!(super::error(layer.layer(handler).oneshot(source.message("a")).await), error);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_its_generation_ends_the_rest_and_the_message_is_not_handled_again() {
    for layer in modes() {
        let source = Source::new();
        let (mut service, gate) = gated(&layer);
        let mut response = task::spawn(service.call(source.message("a")));
        assert_pending!(response.poll());
        gate.next().await.fail("down");
        assert_pending!(response.poll());
        source.generation.end();
        assert!(response.is_woken());
        assert_eq!(assert_ready_ok!(response.poll()), Outcome::Release);
        assert!(gate.try_next().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_becomes_stale_while_it_waits_for_the_service_is_not_handled_again() {
    let (mut service, mut handle) =
        tower_test::mock::spawn_layer::<Message, (), _>(RetryLayer::in_place(super::backoff()));
    let source = Source::new();
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(source.message("a")));
    assert_pending!(response.poll());
    handle.next_request().await.expect("called").1.send_error("down");
    assert_pending!(response.poll());
    tokio::time::advance(super::MS * 11).await;
    assert_pending!(response.poll(), "the service is busy");
    source.generation.end();
    handle.allow(1);
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Release);
    drop((response, service));
    assert!(handle.next_request().await.is_none(), "nothing was called");
}

#[tokio::test(start_paused = true)]
async fn no_try_begins_when_the_stack_drains_while_it_waits_for_the_service() {
    let (mut service, mut handle) =
        tower_test::mock::spawn_layer::<Message, (), _>(RetryLayer::in_place(super::backoff()));
    let source = Source::new();
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(source.message("a")));
    assert_pending!(response.poll());
    handle.next_request().await.expect("called").1.send_error("down");
    assert_pending!(response.poll());
    tokio::time::advance(super::MS * 11).await;
    assert_pending!(response.poll(), "the service is busy");
    source.origin().start_drain(Drain::Finish);
    handle.allow(1);
    assert_eq!(assert_ready_ok!(response.poll()), Outcome::Release);
    drop((response, service));
    assert!(handle.next_request().await.is_none(), "nothing was called");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_service_that_stays_busy_is_released_at_the_end_of_its_stack_or_connection() {
    let drains = |source: &Source| source.origin().start_drain(Drain::Release);
    let ends = |source: &Source| source.generation.end();
    for (n, end) in [&drains as &dyn Fn(&Source), &ends].into_iter().enumerate() {
        let (mut service, mut handle) =
            tower_test::mock::spawn_layer::<Message, (), _>(RetryLayer::in_place(super::backoff()));
        let source = Source::new();
        handle.allow(1);
        assert_ready_ok!(service.poll_ready());
        let mut response = task::spawn(service.call(source.message("a")));
        assert_pending!(response.poll());
        handle.next_request().await.expect("called").1.send_error("down");
        assert_pending!(response.poll());
        tokio::time::advance(super::MS * 11).await;
        assert_pending!(response.poll(), "the service is busy");
        end(&source);
        assert!(response.is_woken(), "end {n}");
        assert_eq!(assert_ready_ok!(response.poll()), Outcome::Release);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_while_it_rests_leaves_nothing_behind() {
    let source = Source::new();
    let (mut service, gate) = gated(&RetryLayer::park(hourly()));
    let (turn, probe) = turn();
    let mut message = source.message("a");
    let _detached = message.set_turn(turn);
    let mut response = task::spawn(service.call(message));
    assert_pending!(response.poll());
    gate.next().await.fail("down");
    assert_pending!(response.poll());
    assert!(probe.is_parked());
    drop(response);
    assert!(!probe.is_parked());
    assert_eq!(source.heard(), ["a retried after 3600s", "a parked", "a resumed"]);
    tokio::time::advance(2 * HOUR).await;
    assert!(gate.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_while_it_runs_is_not_tried_again() {
    let (source, (mut service, gate)) = (Source::new(), gated(&RetryLayer::in_place(hourly())));
    let mut response = task::spawn(service.call(source.message("a")));
    assert_pending!(response.poll());
    drop(response);
    assert_eq!(gate.waiting(), 0);
    assert!(source.heard().is_empty());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "boom")]
async fn a_panic_goes_on() {
    async fn explodes(_: Message) -> Result<(), BoxError> {
        panic!("boom")
    }
    let handler = service_fn(explodes);
    let _ = RetryLayer::in_place(hourly()).layer(handler).oneshot(Source::new().message("a")).await;
}
