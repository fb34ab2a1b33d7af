//! Three ways to try again, on the embedded broker: `cargo run --example retry`.
//!
//! One worker, two customers. The first order of alice fails once, as the warehouse is closed for a moment. In place,
//! everybody waits for it. Parked, only alice does. Through the broker nobody waits, and her second order overtakes the
//! first.

use std::time::Duration;

use tokio::time::Instant;
use tower::{BoxError, ServiceBuilder};
use tower_mq::{
    Backoff, Bytes, Key, Message, PartitionLayer, RetryLayer, SettleLayer, handler, serve, source::memory,
};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // At most 100 ms after the first failure, then 200 ms, … up to a second. Without jitter, so that the times below are
    // the same each time. Keep the jitter in production.
    let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(1)).without_jitter();

    run("in place: its key and its worker wait", RetryLayer::in_place(backoff)).await?;
    run("park: its key waits, its worker goes on", RetryLayer::park(backoff)).await?;
    run("requeue: nobody waits, and the order of its key is lost", RetryLayer::requeue(backoff)).await
}

async fn run(title: &str, retry: RetryLayer) -> Result<(), BoxError> {
    println!("\n{title}\n{:>6}", "ms");
    let broker = memory::Broker::new();
    for (customer, order) in [("alice", "tea"), ("bob", "coffee"), ("alice", "cake")] {
        broker.publish("orders", Message::builder(order).key(customer).build())?;
    }

    let start = Instant::now();
    let retry = retry.on_retry(move |message, error, after| {
        let order = String::from_utf8_lossy(message.payload());
        println!("{:>6}  {order}: {error}; again after {after:?}", start.elapsed().as_millis());
    });
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::per_key(1))
        .layer(SettleLayer::new())
        .layer(retry)
        .service(handler(move |key, message, order| book(start, key, message, order)));

    let orders = broker.queue("orders").window(16).consume();
    serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await?;
    Ok(())
}

/// Books an order. For the very first try of a tea the warehouse is closed.
async fn book(start: Instant, Key(customer): Key, message: Message, order: Bytes) -> Result<(), BoxError> {
    if order == "tea" && message.tries() == 1 && message.attempt() == Some(1) {
        return Err("the warehouse is closed".into());
    }
    let customer = customer.unwrap_or_default();
    println!(
        "{:>6}  {}: booked for {}",
        start.elapsed().as_millis(),
        String::from_utf8_lossy(&order),
        String::from_utf8_lossy(&customer)
    );
    Ok(())
}
