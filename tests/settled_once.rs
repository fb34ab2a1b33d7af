//! Exactly one settlement for each delivery, however it ends, in every mode of Partition and without it.

use std::{
    future::pending,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::sleep;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, timeout::TimeoutLayer, util::BoxCloneService};
use tower_mq::{
    Delivery, Drain, FailureExt, Message, Outcome, PartitionLayer, ServeError, SettleLayer, Settled, handler,
    serve,
    source::Source,
    testing::{self, Probe},
};
use tower_service::Service;

type Stack = BoxCloneService<Delivery, Settled, BoxError>;

const TIMEOUT: Duration = Duration::from_millis(50);
/// What the default policy makes of a first failure.
const RETRY: Outcome = Outcome::Retry { after: Duration::from_secs(1) };

/// Ends as its message says.
async fn ends(text: Bytes) -> Result<Outcome, BoxError> {
    match &text[..] {
        b"return" => Ok(Outcome::Ack),
        b"give back" => Ok(Outcome::Release),
        b"refuse" => Ok(Err::<Outcome, _>("unreadable").or_reject()?),
        b"error" => Err("the database is down".into()),
        b"panic" => panic!("on purpose"),
        b"slow" => {
            sleep(TIMEOUT / 2).await;
            Ok(Outcome::Ack)
        }
        _ => pending().await,
    }
}

fn message(text: &'static str) -> tower_mq::MessageBuilder {
    Message::builder(text).key("one").attempt(1)
}

/// The stack without lanes, and with each kind of them.
fn stacks() -> Vec<(&'static str, Stack)> {
    let settled = || {
        ServiceBuilder::new()
            .layer(SettleLayer::new())
            .layer(TimeoutLayer::new(TIMEOUT))
            .service(handler(ends))
    };
    let lanes = |layer: PartitionLayer<Delivery>| layer.layer(settled()).boxed_clone();
    vec![
        ("no lanes", settled().map_err(Into::into).boxed_clone()),
        ("by_key", lanes(PartitionLayer::by_key(2))),
        ("by_key inline", lanes(PartitionLayer::by_key(2).inline())),
        ("per_key", lanes(PartitionLayer::per_key(2))),
        ("per_key inline", lanes(PartitionLayer::per_key(2).inline())),
        ("unordered", lanes(PartitionLayer::unordered(2))),
    ]
}

#[track_caller]
fn assert_once(kind: &str, probe: &Probe, outcome: &Outcome) {
    assert_eq!((probe.outcome().as_ref(), probe.times()), (Some(outcome), 1), "{kind}");
}

/// Lets tasks that were woken run until nothing is left to do.
async fn settle_down() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn return_error_panic_and_time_out_settle_once() {
    for (kind, stack) in stacks() {
        let (source, script) = testing::source();
        let endings = [
            ("return", Outcome::Ack),
            ("give back", Outcome::Release),
            ("refuse", Outcome::reject("unreadable")),
            ("error", RETRY),
            ("panic", RETRY),
            ("never", RETRY),
        ];
        let probes = endings.map(|(text, outcome)| (script.deliver(message(text)), outcome));
        script.end();
        let report = serve(source, stack).await.expect("the script ends well");
        for (probe, outcome) in probes {
            assert_once(kind, &probe, &outcome);
        }
        assert_eq!((report.counts.taken, report.counts.open(), report.errors), (6, 0, 0), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_before_its_first_poll_releases_once() {
    for (kind, mut stack) in stacks() {
        let (delivery, probe) = testing::delivery(message("slow").build());
        drop(stack.ready().await.expect("ready").call(delivery));
        settle_down().await;
        assert_eq!((probe.is_dropped(), probe.times()), (true, 1), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_in_the_middle_releases_once() {
    for (kind, mut stack) in stacks() {
        let (delivery, probe) = testing::delivery(message("slow").build());
        let response = stack.ready().await.expect("ready").call(delivery);
        let response = tokio::time::timeout(TIMEOUT / 4, response).await;
        assert!(response.is_err(), "{kind}: it still runs");
        settle_down().await;
        assert_eq!((probe.is_dropped(), probe.times()), (true, 1), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_after_its_end_settles_once() {
    for (kind, mut stack) in stacks() {
        let (delivery, probe) = testing::delivery(message("return").build());
        let mut response = Box::pin(stack.ready().await.expect("ready").call(delivery));
        // A lane finishes on its own; without lanes, or inline, somebody has to poll.
        while response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            settle_down().await;
        }
        drop(response);
        settle_down().await;
        assert_once(kind, &probe, &Outcome::Ack);
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_dropped_releases_what_ran_and_what_waited_once() {
    for (kind, stack) in stacks() {
        let (source, script) = testing::source();
        let probes = [(); 3].map(|()| script.deliver(message("slow")));
        let run = tokio::time::timeout(TIMEOUT / 4, serve(source, stack)).await;
        assert!(run.is_err(), "{kind}: it still runs");
        settle_down().await;
        let mut taken = 0;
        for probe in &probes {
            taken += usize::from(probe.taken_at().is_some());
            assert_eq!(
                (probe.outcome(), probe.times()),
                (None, usize::from(probe.taken_at().is_some())),
                "{kind}"
            );
        }
        assert!(taken >= 1, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_drain_time_out_what_still_runs_is_released_once() {
    for (kind, stack) in stacks() {
        let (source, script) = testing::source();
        let probe = script.deliver(message("slow"));
        let report = serve(source, stack)
            .with_graceful_shutdown(sleep(TIMEOUT / 10))
            .drain_timeout(TIMEOUT / 10)
            .await
            .expect("the end was asked for");
        assert_eq!((probe.is_dropped(), probe.times()), (true, 1), "{kind}");
        assert_eq!((report.abandoned, report.counts.dropped, report.counts.open()), (1, 1, 0), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_releases_gives_back_what_has_not_started() {
    for (kind, stack) in stacks().into_iter().filter(|(kind, _)| *kind != "no lanes" && *kind != "unordered")
    {
        let (source, script) = testing::source();
        let probes = [(); 3].map(|()| script.deliver(message("slow")));
        let report = serve(source, stack)
            .with_graceful_shutdown(sleep(TIMEOUT / 4))
            .on_shutdown(Drain::Release)
            .await
            .expect("the end was asked for");
        assert_once(kind, &probes[0], &Outcome::Ack);
        assert_once(kind, &probes[1], &Outcome::Release);
        assert_once(kind, &probes[2], &Outcome::Release);
        assert_eq!((report.counts.acked, report.counts.released), (1, 2), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_lets_what_runs_settle_once() {
    for (kind, stack) in stacks() {
        let (source, script) = testing::source();
        let probe = script.deliver(message("slow"));
        script.fail("the queue was deleted");
        let error = serve(source, stack).await.expect_err("nobody asked for the end");
        assert!(matches!(error, ServeError::Source { .. }), "{kind}");
        assert_once(kind, &probe, &Outcome::Ack);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_in_between_makes_what_ran_stale_and_what_waited_is_not_handled() {
    for (kind, stack) in stacks() {
        let (source, script) = testing::source();
        let handle = source.handle();
        let probes = [(); 3].map(|()| script.deliver(message("slow")));
        let run = tokio::spawn(serve(source, stack));
        sleep(TIMEOUT / 4).await;
        let old: Vec<_> = probes.iter().filter(|probe| probe.taken_at().is_some()).collect();
        script.new_generation();
        sleep(TIMEOUT * 4).await;
        for probe in &old {
            assert_eq!((probe.is_stale(), probe.times()), (true, 1), "{kind}");
        }
        // Those that had started were finished; the others were given back unhandled.
        assert_eq!(old[0].outcome(), Some(Outcome::Ack), "{kind}");
        if kind.contains("key") {
            assert_eq!(old[2].outcome(), Some(Outcome::Release), "{kind}");
        }
        let fresh = script.deliver(message("return"));
        settle_down().await;
        assert_once(kind, &fresh, &Outcome::Ack);
        handle.close(Drain::Finish);
        let report = pin!(run).await.expect("no panic").expect("the end was asked for");
        assert_eq!(report.counts.stale, old.len() as u64, "{kind}");
    }
}
