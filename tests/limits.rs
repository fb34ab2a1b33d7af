//! A limit that the lanes of a stack share: a lane that has nothing more to do keeps no place under it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::{BoxError, Layer, ServiceBuilder, limit::ConcurrencyLimitLayer, util::BoxCloneService};
use tower_mq::{
    Delivery, Drain, LaneKey, Message, Outcome, PartitionLayer, Report, SettleLayer, Settled, serve,
    source::{Source, memory::Broker},
    testing::{self, assert_settled},
};

type Stack = BoxCloneService<Delivery, Settled, BoxError>;

const WORK: Duration = Duration::from_millis(10);

/// Lanes of each kind, over a handler of which at most so many run at a time.
fn stacks(lanes: usize, limit: usize) -> [(&'static str, Stack); 6] {
    let limited = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(ConcurrencyLimitLayer::new(limit))
        .service_fn(|_: Message| async {
            sleep(WORK).await;
            Ok::<_, BoxError>(())
        });
    let stack = |layer: PartitionLayer<Delivery>| BoxCloneService::new(layer.layer(limited.clone()));
    [
        ("by_key", stack(PartitionLayer::by_key(lanes))),
        ("by_key inline", stack(PartitionLayer::by_key(lanes).inline())),
        ("per_key", stack(PartitionLayer::per_key(lanes))),
        ("per_key inline", stack(PartitionLayer::per_key(lanes).inline())),
        ("unordered", stack(PartitionLayer::unordered(lanes))),
        ("unordered inline", stack(PartitionLayer::unordered(lanes).inline())),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_releases_what_waits_is_not_held_up_by_a_limit() {
    for (kind, stack) in stacks(8, 2) {
        let broker = Broker::new();
        for number in 0..100 {
            let message = Message::builder(number.to_string()).key((number % 20).to_string()).build();
            broker.publish("orders", message).expect("it is open");
        }
        let start = Instant::now();
        let report = serve(broker.queue("orders").consume(), stack)
            .on_shutdown(Drain::Release)
            .with_graceful_shutdown(sleep(WORK * 5 + WORK / 2))
            .await
            .expect("the end was asked for");
        assert!(start.elapsed() < WORK * 8, "{kind}: {:?}", start.elapsed());
        let Report { counts, abandoned, .. } = report;
        assert_eq!((abandoned, counts.dropped, counts.taken), (0, 0, 100), "{kind}");
        assert_eq!(counts.acked + counts.released, 100, "{kind}");
        assert_eq!(broker.depth("orders").ready as u64, counts.released, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_not_handled_keeps_no_place_under_a_limit() {
    let lane = |key: &str| LaneKey::of(key).lane(2);
    let other = (0..).map(|n: u32| n.to_string()).find(|key| lane(key) != lane("a")).expect("there are many");
    for (kind, stack) in stacks(2, 1) {
        let (source, script) = testing::source();
        let handle = source.handle();
        let run = tokio::spawn(serve(source, stack));
        let lost = [(); 2].map(|()| script.deliver(Message::builder("one").key("a")));
        sleep(WORK / 2).await;
        script.new_generation();
        sleep(WORK * 2).await;
        assert!(lost.iter().all(|probe| probe.is_stale() || probe.outcome().is_none()), "{kind}");
        let next = script.deliver(Message::builder("two").key(other.clone()));
        sleep(WORK * 2).await;
        assert_settled!(next, Outcome::Ack);
        handle.close(Drain::Finish);
        run.await.expect("no panic").expect("the end was asked for");
    }
}
