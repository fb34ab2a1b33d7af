//! When it opens, probes and closes.

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Circuit, Message, Outcome};

use super::{RETRY, SECOND, Source, call, down, gated, is_ready, open, quick};

#[tokio::test(start_paused = true)]
async fn it_opens_at_the_share_of_failures_and_not_before_the_minimum() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick().minimum(3)));
    for outcome in [RETRY, RETRY] {
        call(&mut service, &gate, &source, outcome).await;
        assert!(is_ready(&mut service));
    }
    call(&mut service, &gate, &source, Outcome::Ack).await;
    assert!(is_ready(&mut service), "two of three, but a success opens nothing");
    call(&mut service, &gate, &source, Outcome::Ack).await;
    call(&mut service, &gate, &source, Outcome::Ack).await;
    call(&mut service, &gate, &source, Outcome::Ack).await;
    call(&mut service, &gate, &source, Outcome::reject("no")).await;
    assert!(is_ready(&mut service) && source.heard().is_empty(), "one of four");
    call(&mut service, &gate, &source, Outcome::Ack).await;
    call(&mut service, &gate, &source, RETRY).await;
    assert_eq!(source.heard(), [Circuit::Open], "two of four");
    assert!(!is_ready(&mut service));
}

#[tokio::test(start_paused = true)]
async fn errors_are_failures_and_releases_are_nothing() {
    let handler = service_fn(|message: Message| async move {
        match message.payload().as_ref() {
            b"release" => Ok(Outcome::Release),
            _ => Err::<Outcome, BoxError>(down()),
        }
    });
    let mut service = quick().layer(handler);
    for _ in 0..10 {
        assert!(is_ready(&mut service));
        service.call(Message::new("release")).await.expect("released");
    }
    for _ in 0..2 {
        assert!(is_ready(&mut service), "releases are not among the last four");
        let _ = service.call(Message::new("fails")).await;
    }
    assert!(!is_ready(&mut service));
}

#[tokio::test(start_paused = true)]
async fn after_the_pause_one_delivery_probes_and_its_success_closes_the_circuit() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    open(&mut service, &gate, &source).await;
    advance(SECOND - SECOND / 10).await;
    assert!(!is_ready(&mut service));
    advance(SECOND / 5).await;
    assert!(is_ready(&mut service) && is_ready(&mut service), "and it stays ready");
    let mut probe = task::spawn(service.call(source.message()));
    assert_pending!(probe.poll());
    assert_eq!(source.heard(), [Circuit::Open, Circuit::HalfOpen]);
    assert!(!is_ready(&mut service), "one at a time");
    gate.next().await.answer(Outcome::Ack);
    assert!(assert_ready!(probe.poll()).is_ok());
    assert_eq!(source.heard(), [Circuit::Closed]);
    assert!(is_ready(&mut service));
    call(&mut service, &gate, &source, RETRY).await;
    assert!(is_ready(&mut service), "what was before is forgotten");
}

#[tokio::test(start_paused = true)]
async fn each_probe_that_fails_makes_the_pause_longer_until_one_succeeds() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    for _ in 0..2 {
        open(&mut service, &gate, &source).await;
        for pause in [1, 2, 4, 8, 8] {
            let start = tokio::time::Instant::now();
            call(&mut service, &gate, &source, RETRY).await;
            assert_eq!(start.elapsed(), pause * SECOND);
        }
        call(&mut service, &gate, &source, Outcome::Ack).await;
    }
}

#[tokio::test(start_paused = true)]
async fn deliveries_of_before_the_pause_say_nothing_of_what_comes_after() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick()));
    let mut early = Vec::new();
    for _ in 0..6 {
        let mut response = task::spawn(service.ready().await.expect("ready").call(source.message()));
        assert_pending!(response.poll());
        early.push((response, gate.next().await));
    }
    open(&mut service, &gate, &source).await;
    let mut end = |outcome| {
        let (mut response, call) = early.pop().expect("there are six");
        call.answer(outcome);
        assert!(assert_ready!(response.poll()).is_ok());
    };
    end(Outcome::Ack);
    assert!(!is_ready(&mut service), "a success of before does not close it");
    end(RETRY);
    call(&mut service, &gate, &source, Outcome::Ack).await;
    assert_eq!(source.heard(), [Circuit::Open, Circuit::HalfOpen, Circuit::Closed]);
    (0..4).for_each(|_| end(RETRY));
    assert!(is_ready(&mut service) && source.heard().is_empty(), "nor do failures of before open it again");
}

#[tokio::test(start_paused = true)]
async fn failures_that_are_older_than_a_window_of_time_are_forgotten() {
    let (source, (mut service, gate)) = (Source::new(), gated(&quick().window(10 * SECOND)));
    call(&mut service, &gate, &source, RETRY).await;
    advance(11 * SECOND).await;
    call(&mut service, &gate, &source, RETRY).await;
    assert!(is_ready(&mut service), "one of one is below the minimum");
    advance(8 * SECOND).await;
    call(&mut service, &gate, &source, RETRY).await;
    assert!(!is_ready(&mut service));
}
