//! A queue that is paused while too many of its messages fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower::{Service, ServiceBuilder};
use tower_mq::{
    BoxError, BreakerLayer, Delivery, Drain, Message, Outcome, PartitionLayer, SettleLayer, handler, serve,
    testing::{self, Probe, Script, assert_settled},
};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// Opens after two failures, for an hour.
fn stack(up: Arc<AtomicBool>) -> impl Service<Delivery, Error = BoxError, Future: Send> + Send + Clone {
    ServiceBuilder::new()
        .layer(BreakerLayer::new().minimum(2).pause(HOUR, HOUR).without_jitter())
        .layer(PartitionLayer::by_key(4))
        .layer(SettleLayer::new())
        .service(handler(move |_: Message| {
            let up = up.load(Ordering::Relaxed);
            async move { if up { Ok(()) } else { Err(BoxError::from("the database is down")) } }
        }))
}

/// One delivery after the other, a second between them.
fn deliver(script: &Script, n: usize) -> Vec<Probe> {
    let deliver = |_| {
        script.wait(SECOND);
        script.deliver(Message::builder("").key("a").attempt(1))
    };
    (0..n).map(deliver).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_taken_while_too_many_fail_and_all_goes_on_when_a_probe_succeeds() {
    let ((source, script), up) = (testing::source(), Arc::new(AtomicBool::new(false)));
    let probes = deliver(&script, 6);
    let (start, database) = (Instant::now(), up.clone());
    let shutdown = {
        let last = probes[5].clone();
        async move {
            sleep(HOUR / 2).await;
            database.store(true, Ordering::Relaxed);
            last.settled().await;
        }
    };
    let report = serve(source, stack(up)).with_graceful_shutdown(shutdown).await.expect("served");
    assert_eq!((report.counts.retried, report.counts.acked), (2, 4));
    probes[2].assert_settled(&Outcome::Ack);
    // Taken when the pause began; the others stayed where they were.
    assert_eq!(probes[2].taken_at(), Some(start + 3 * SECOND));
    assert!(probes[2].settled_at().expect("settled") >= start + HOUR);
    assert!(probes[3].taken_at().expect("taken") >= start + HOUR);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_it_is_paused_ends_at_once_and_the_delivery_in_hand_is_not_forgotten() {
    for (drain, expected) in [(Drain::Release, (2, 1)), (Drain::Finish, (3, 0))] {
        let ((source, script), start) = (testing::source(), Instant::now());
        let probes = deliver(&script, 6);
        let run = serve(source, stack(Arc::default())).on_shutdown(drain);
        let report = run.with_graceful_shutdown(sleep(10 * SECOND)).await.expect("served");
        assert!(start.elapsed() < 11 * SECOND, "{:?}", start.elapsed());
        assert_eq!((report.counts.retried, report.counts.released), expected);
        assert_eq!((report.counts.taken, report.abandoned), (3, 0));
        assert_settled!(probes[2], Outcome::Retry { .. } | Outcome::Release);
        assert!(probes[3].taken_at().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn one_breaker_pauses_both_queues_of_one_service() {
    let (up, start) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let stack = stack(up.clone());
    let run = |stack, n| {
        let (source, script) = testing::source();
        let probes = deliver(&script, n);
        let last = probes[n - 1].clone();
        let run = serve(source, stack).with_graceful_shutdown(async move { last.settled().await });
        (tokio::spawn(run), probes)
    };
    let ((one, first), (two, second)) = (run(stack.clone(), 3), run(stack, 3));
    sleep(HOUR / 2).await;
    up.store(true, Ordering::Relaxed);
    for run in [one, two] {
        run.await.expect("joined").expect("served");
    }
    for probes in [first, second] {
        assert_settled!(probes[0], Outcome::Retry { .. });
        let last = probes[2].settled_at().expect("settled");
        assert!(last >= start + HOUR && last < start + HOUR + 10 * SECOND);
    }
}
