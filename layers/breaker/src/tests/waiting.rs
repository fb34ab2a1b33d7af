//! Those who wait while the circuit is open.

use std::future::poll_fn;

use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_mq_delivery::{BoxError, Circuit, Drain, Message, Outcome};
use tower_mq_testing::Gated;
use tower_test::mock;

use super::{RETRY, SECOND, Source, call, gated, is_ready, open, quick};
use crate::Breaker;

async fn ready(mut service: Breaker<Gated<Message>>) -> Breaker<Gated<Message>> {
    poll_fn(|cx| service.poll_ready(cx)).await.expect("it does not fail");
    service
}

#[tokio::test(start_paused = true)]
async fn clones_share_one_breaker_and_one_probe() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    let mut other = service.clone();
    call(&mut other, &gate, &source, RETRY).await;
    call(&mut service, &gate, &source, RETRY).await;
    assert!(!is_ready(&mut service) && !is_ready(&mut other));
    let [mut first, mut second] = [service.clone(), other].map(|service| task::spawn(ready(service)));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    advance(SECOND).await;
    assert!(first.is_woken() && second.is_woken());
    let mut probing = assert_ready!(first.poll());
    assert_pending!(second.poll(), "the probe is out, though it was not called yet");
    let mut probe = task::spawn(probing.call(source.message()));
    assert_pending!(probe.poll());
    assert!(!second.is_woken());
    gate.next().await.answer(Outcome::Ack);
    assert!(assert_ready!(probe.poll()).is_ok());
    assert!(second.is_woken());
    assert!(is_ready(&mut assert_ready!(second.poll())));
}

#[tokio::test(start_paused = true)]
async fn when_the_probe_fails_those_who_wait_wait_for_the_next_one() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    open(&mut service, &gate, &source).await;
    let mut waiting = task::spawn(ready(service.clone()));
    advance(SECOND).await;
    assert!(is_ready(&mut service));
    assert_pending!(waiting.poll());
    let probe = service.call(source.message());
    gate.next().await.answer(RETRY);
    probe.await.expect("answered");
    assert!(waiting.is_woken());
    let failed = Instant::now();
    waiting.await;
    assert_eq!(failed.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_given_up_at_any_stage_leaves_its_place_to_another_one_at_once() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    open(&mut service, &gate, &source).await;
    advance(SECOND).await;
    for stage in ["ready", "called", "polled", "released"] {
        let mut probing = ready(service.clone()).await;
        let mut waiting = task::spawn(ready(service.clone()));
        assert_pending!(waiting.poll());
        match stage {
            "ready" => drop(probing),
            "called" => drop(probing.call(source.message())),
            "polled" => {
                let mut probe = task::spawn(probing.call(source.message()));
                assert_pending!(probe.poll());
                assert!(!waiting.is_woken());
                drop(probe);
            }
            _ => {
                let probe = probing.call(source.message());
                gate.next().await.answer(Outcome::Release);
                probe.await.expect("released");
            }
        }
        assert!(waiting.is_woken(), "{stage}");
        drop(assert_ready!(waiting.poll()));
    }
    call(&mut service, &gate, &source, RETRY).await;
    let start = Instant::now();
    ready(service).await;
    assert_eq!(start.elapsed(), 2 * SECOND, "those who were given up made no pause longer");
}

#[tokio::test(start_paused = true)]
async fn who_waits_and_goes_away_takes_nothing_along() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    open(&mut service, &gate, &source).await;
    let mut gone = task::spawn(ready(service.clone()));
    assert_pending!(gone.poll());
    let mut stays = task::spawn(ready(service.clone()));
    assert_pending!(stays.poll());
    advance(SECOND).await;
    assert!(gone.is_woken() && stays.is_woken());
    drop(gone);
    assert_ready!(stays.poll());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_in_a_stack_that_is_about_to_end() {
    for (drain, called) in [(Drain::Finish, true), (Drain::Release, false)] {
        let (source, (service, gate)) = (Source::new(), gated(&quick()));
        // One that was never called goes by the delivery that opened the circuit.
        let mut fresh = service.clone();
        let mut service = service;
        open(&mut service, &gate, &source).await;
        let waiting = if called { &mut service } else { &mut fresh };
        let mut waits = task::spawn(poll_fn(|cx| waiting.poll_ready(cx)));
        assert_pending!(waits.poll());
        source.generation.origin().start_drain(drain);
        assert!(waits.is_woken());
        assert!(assert_ready!(waits.poll()).is_ok());
        drop(waits);
        call(waiting, &gate, &source, RETRY).await;
        assert!(is_ready(waiting), "and so on, without a further pause");
        assert_eq!(source.heard(), [Circuit::Open]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_waits_for_the_end_of_its_own_source() {
    let (one, (mut of_one, gate)) = (Source::new(), gated(&quick()));
    let (other, mut of_other) = (Source::new(), of_one.clone());
    call(&mut of_other, &gate, &other, Outcome::Ack).await;
    open(&mut of_one, &gate, &one).await;
    let mut waits = task::spawn(ready(of_other));
    assert_pending!(waits.poll());
    one.generation.origin().start_drain(Drain::Finish);
    assert!(!waits.is_woken());
    other.generation.origin().start_drain(Drain::Finish);
    assert!(waits.is_woken());
    assert_ready!(waits.poll());
}

#[tokio::test(start_paused = true)]
async fn nothing_inside_is_reserved_while_it_waits() {
    let source = Source::new();
    let fails = service_fn(|_: Message| async { Err::<Outcome, BoxError>(super::down()) });
    let mut service = quick().layer(ConcurrencyLimit::new(fails, 1));
    for _ in 0..2 {
        let response = service.ready().await.expect("ready").call(source.message());
        response.await.expect_err("it fails");
    }
    assert!(!is_ready(&mut service));
    let mut somebody_else = service.get_ref().clone();
    assert!(is_ready(&mut somebody_else), "the only place is free");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_woken_while_it_is_closed() {
    let (service, mut handle) = mock::pair::<Message, Outcome>();
    let mut service = quick().layer(service);
    handle.allow(0);
    let mut busy = task::spawn(poll_fn(|cx| service.poll_ready(cx)));
    assert_pending!(busy.poll(), "it is the inner service that is busy");
    advance(100 * SECOND).await;
    assert!(!busy.is_woken());
    handle.allow(1);
    assert!(busy.is_woken());
    assert!(assert_ready!(busy.poll()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_will_never_be_ready_again_says_so() {
    let (mut service, mut handle) = mock::spawn_layer::<Message, Outcome, _>(quick());
    handle.send_error("gone");
    let error: BoxError = tokio_test::assert_ready_err!(service.poll_ready());
    assert_eq!(error.to_string(), "gone");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_ready_when_the_circuit_opened_stays_ready_for_one_call() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    let mut early = ready(service.clone()).await;
    open(&mut service, &gate, &source).await;
    assert!(is_ready(&mut early));
    call(&mut early, &gate, &source, Outcome::Ack).await;
    assert!(!is_ready(&mut early));
}
