//! The in-process broker under whole stacks.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::sleep;
use tower::{BoxError, ServiceBuilder};
use tower_mq::{
    Attempt, Key, Message, PartitionLayer, ServeError, SettleLayer, handler, serve,
    source::{Source, SourceErrorKind, memory::Broker},
    testing::Recorder,
};

const KEYS: u64 = 7;
const MESSAGES: u64 = 200;

/// A number that depends on nothing but its seed.
fn random(seed: u64) -> u64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn publish(broker: &Broker) {
    for n in 0..MESSAGES {
        let message = Message::builder(n.to_string()).key((random(n) % KEYS).to_string()).build();
        broker.publish("orders", message).expect("the broker is open");
    }
}

fn number(payload: &Bytes) -> u64 {
    std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok()).expect("the payload is a number")
}

/// What was handled without an error, in the order of its key.
type Handled = Arc<Mutex<HashMap<Bytes, Vec<u64>>>>;

fn in_order(handled: &Handled) -> bool {
    handled.lock().values().all(|numbers| numbers.is_sorted_by(|a, b| a < b))
}

/// Handles for a random time; every fifth message fails the first time.
async fn handle(handled: Handled, key: Key, attempt: Attempt, payload: Bytes) -> Result<(), BoxError> {
    let n = number(&payload);
    sleep(Duration::from_millis(random(n) % 20)).await;
    if n.is_multiple_of(5) && attempt.0 == Some(1) {
        return Err("not now".into());
    }
    handled.lock().entry(key.0.expect("every message has a key")).or_default().push(n);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_grouped_queue_keeps_the_order_of_every_key_over_consumers_and_retries() {
    let broker = Broker::new();
    broker.queue("orders").grouped().declare();
    publish(&broker);
    let (recorder, handled) = (Recorder::new(), Handled::default());
    let consumers = [(); 3].map(|()| {
        let handled = handled.clone();
        let stack = ServiceBuilder::new()
            .layer(PartitionLayer::by_key(4))
            .layer(SettleLayer::new())
            .layer(recorder.clone())
            .service(handler(move |key: Key, attempt: Attempt, payload: Bytes| {
                handle(handled.clone(), key, attempt, payload)
            }));
        let orders = broker.queue("orders").window(2).consume();
        tokio::spawn(serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).into_future())
    });
    let mut counts = (0, 0);
    for consumer in consumers {
        let report = consumer.await.expect("it does not panic").expect("it ends well");
        counts.0 += report.counts.acked;
        counts.1 += report.counts.retried;
    }
    assert_eq!(counts, (MESSAGES, MESSAGES / 5));
    assert_eq!(recorder.peak_of_a_key(), 1);
    assert!(recorder.peak() > 2, "a consumer runs two at most, so others ran beside it");
    assert!(in_order(&handled));
}

#[tokio::test(start_paused = true)]
async fn lost_connections_lose_nothing_and_what_comes_again_is_bounded_by_the_window() {
    let broker = Broker::new();
    publish(&broker);
    let (calls, handled) = (Arc::new(AtomicU64::new(0)), Handled::default());
    let stack =
        ServiceBuilder::new().layer(PartitionLayer::by_key(4)).layer(SettleLayer::new()).service(handler({
            let (calls, handled) = (calls.clone(), handled.clone());
            move |key: Key, payload: Bytes| {
                let handled = handled.clone();
                calls.fetch_add(1, Ordering::Relaxed);
                async move {
                    sleep(Duration::from_millis(random(number(&payload)) % 20)).await;
                    handled.lock().entry(key.0.expect("a key")).or_default().push(number(&payload));
                }
            }
        }));
    let orders = broker.queue("orders").window(16).consume();
    let mut health = orders.handle().watch();
    let faults = 3;
    let served =
        tokio::spawn(serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).into_future());
    for _ in 0..faults {
        sleep(Duration::from_millis(100)).await;
        broker.disconnect_consumers();
        health.changed().await.expect("the source lives");
    }
    let report = served.await.expect("it does not panic").expect("it ends well");
    assert_eq!((report.counts.acked, broker.len("orders")), (MESSAGES, 0));
    assert!(report.counts.stale <= faults * 16);
    // Four lanes: so many can have been running when a connection was lost.
    let again = calls.load(Ordering::Relaxed) - MESSAGES;
    assert!((1..=faults * 4).contains(&again), "{again} were handled again");
    let mut all: Vec<_> = handled.lock().values().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, MESSAGES);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_goes_away_ends_the_run_with_an_error() {
    let broker = Broker::new();
    publish(&broker);
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .service(handler(async |_: Message| sleep(Duration::from_millis(10)).await));
    let served = tokio::spawn(serve(broker.queue("orders").consume(), stack).into_future());
    sleep(Duration::from_millis(55)).await;
    broker.close();
    let Err(ServeError::Source { error, report }) = served.await.expect("it does not panic") else {
        panic!("the source did not end with an error");
    };
    assert_eq!(error.kind(), SourceErrorKind::Closed);
    assert_eq!((report.counts.acked, report.counts.stale), (5, 1));
    assert_eq!(broker.len("orders") as u64, MESSAGES - 5);
}
