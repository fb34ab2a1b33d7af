//! Retries through a whole stack, on the embedded broker: what each mode keeps of the order, and what becomes of a
//! message that rests when its stack ends or its connection is lost.

use std::{future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder};
use tower_mq::{
    Backoff, Batch, BatchLayer, BoxError, Delivery, Drain, Message, PartitionLayer, RetryLayer, SettleLayer,
    handler, serve, source::memory::Broker, testing,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn hourly() -> Backoff {
    Backoff::exponential(HOUR, HOUR).without_jitter()
}

/// The messages that were handled well, in that order.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    /// Fails the first time with `first`, whatever the count is called.
    fn handle(&self, message: &Message, first: &str) -> Result<(), BoxError> {
        let text = String::from_utf8_lossy(message.payload()).into_owned();
        if text == first && message.tries() == 1 && message.attempt() == Some(1) {
            return Err("not yet".into());
        }
        self.0.lock().push(text);
        Ok(())
    }
}

fn stack(
    partition: PartitionLayer<Delivery>,
    retry: RetryLayer,
    done: Done,
) -> impl Service<Delivery, Error = BoxError, Future: Send> + Send {
    ServiceBuilder::new().layer(partition).layer(SettleLayer::new()).layer(retry).service(handler(
        move |message: Message| {
            let done = done.clone();
            async move { done.handle(&message, "a1") }
        },
    ))
}

/// Three messages of key `a`, the first of which fails once, and one of key `b`.
async fn order(partition: PartitionLayer<Delivery>, retry: RetryLayer) -> Vec<String> {
    let (broker, done) = (Broker::new(), Done::default());
    for (key, text) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3")] {
        broker.publish("orders", Message::builder(text).key(key).build()).expect("published");
    }
    let orders = broker.queue("orders").window(8).consume();
    let run = serve(orders, stack(partition, retry, done.clone()));
    run.with_graceful_shutdown(broker.drained("orders")).await.expect("served");
    let done = done.0.lock();
    done.clone()
}

#[tokio::test(start_paused = true)]
async fn in_place_keeps_the_order_of_the_key_and_holds_up_its_worker() {
    let partition = || PartitionLayer::per_key(1);
    assert_eq!(order(partition(), RetryLayer::in_place(hourly())).await, ["a1", "b1", "a2", "a3"]);
    assert_eq!(
        order(PartitionLayer::by_key(1), RetryLayer::in_place(hourly())).await,
        ["a1", "a2", "b1", "a3"]
    );
}

#[tokio::test(start_paused = true)]
async fn park_keeps_the_order_of_the_key_and_lets_its_worker_go_on() {
    assert_eq!(order(PartitionLayer::per_key(1), RetryLayer::park(hourly())).await, ["b1", "a1", "a2", "a3"]);
    // A lane cannot tell keys apart: there it is the same as in place.
    let lanes = order(PartitionLayer::by_key(1), RetryLayer::park(hourly())).await;
    assert_eq!(lanes, ["a1", "a2", "b1", "a3"]);
}

#[tokio::test(start_paused = true)]
async fn requeue_gives_the_order_of_the_key_up() {
    for partition in [PartitionLayer::per_key(1), PartitionLayer::by_key(1)] {
        let done = order(partition, RetryLayer::requeue(hourly())).await;
        assert_eq!(done.last().map(String::as_str), Some("a1"), "{done:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_failed_members_of_a_batch_are_tried_again_before_the_next_batch() {
    let (broker, batches) = (Broker::new(), Arc::new(Mutex::new(Vec::new())));
    for text in ["a1", "a2", "a3", "a4", "a5", "a6"] {
        broker.publish("orders", Message::builder(text).key("a").build()).expect("published");
    }
    let seen = batches.clone();
    let handle = move |batch: Batch<Message>| {
        let text = |message: &Message| String::from_utf8_lossy(message.payload()).into_owned();
        let texts: Vec<_> = batch.iter().map(text).collect();
        seen.lock().push(texts.join(" "));
        let first_try = |message: &Message| message.payload() == "a2" && message.tries() == 1;
        let fails: Vec<_> = batch.iter().map(first_try).collect();
        async move {
            fails.into_iter().map(|fails| if fails { Err("not yet") } else { Ok(()) }).collect::<Vec<_>>()
        }
    };
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(2))
        .layer(SettleLayer::new())
        .layer(BatchLayer::new(3))
        .layer(RetryLayer::in_place(hourly()))
        .service(handler(handle));
    let orders = broker.queue("orders").window(8).consume();
    let report = serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await.expect("served");
    assert_eq!(*batches.lock(), ["a1 a2 a3", "a2", "a4 a5 a6"]);
    assert_eq!(report.counts.acked, 6);
}

/// Serves one message that fails, until something that happens after a second.
async fn interrupted<F: Future + Send>(
    retry: RetryLayer,
    drain: Drain,
    then: impl FnOnce(testing::Script) -> F,
) -> (testing::Probe, tower_mq::Report) {
    let (source, script) = testing::source();
    let probe = script.deliver(Message::builder("a1").key("a").attempt(1));
    let stack = stack(PartitionLayer::per_key(1), retry, Done::default());
    let run = serve(source, stack).on_shutdown(drain).with_graceful_shutdown(then(script));
    (probe, run.await.expect("served"))
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_what_rests_at_once() {
    for drain in [Drain::Finish, Drain::Release] {
        for retry in [RetryLayer::in_place(hourly()), RetryLayer::park(hourly())] {
            let start = Instant::now();
            let shutdown = |_| tokio::time::sleep(Duration::from_secs(1));
            let (probe, report) = interrupted(retry, drain, shutdown).await;
            testing::assert_settled!(probe, tower_mq::Outcome::Release);
            assert_eq!((report.counts.released, report.abandoned), (1, 0));
            assert!(start.elapsed() < Duration::from_secs(2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_ends_the_rest_and_nothing_is_sent() {
    for retry in [RetryLayer::in_place(hourly()), RetryLayer::park(hourly())] {
        let start = Instant::now();
        let lost = |script: testing::Script| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            script.new_generation();
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let (probe, report) = interrupted(retry, Drain::Finish, lost).await;
        assert!(probe.is_stale());
        assert_eq!((report.counts.stale, report.abandoned), (1, 0));
        assert!(probe.settled_at().expect("settled") < start + Duration::from_secs(2));
    }
}
