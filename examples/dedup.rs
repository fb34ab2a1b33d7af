//! A message that comes twice is handled once: `cargo run --example dedup`.
//!
//! A producer that missed a confirmation sends its message again, with the same id. The second one is acked as soon as
//! the first one was handled, and never reaches the handler.

use std::time::Duration;

use tower::{BoxError, ServiceBuilder};
use tower_mq::{
    DedupLayer, Event, Key, Message, Origin, PartitionLayer, SettleLayer, handler, serve, source::memory,
};

async fn pay(key: Key, amount: String) -> Result<(), BoxError> {
    let customer = key.0.unwrap_or_default();
    println!("{} pays {amount}", String::from_utf8_lossy(&customer));
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let broker = memory::Broker::new();
    for (id, customer, amount) in [
        ("payment-1", "alice", "5 pounds"),
        ("payment-2", "bob", "8 pounds"),
        ("payment-1", "alice", "5 pounds"), // sent again
        ("payment-3", "alice", "1 pound"),
    ] {
        broker.publish("payments", Message::builder(amount).id(id).key(customer).build())?;
    }

    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(4))
        .layer(SettleLayer::new())
        // Remembers up to 10,000 ids, for ten minutes each. For several processes: the feature `redis`, and
        // `DedupLayer::new(RedisStore::connect("redis://localhost").await?)`.
        .layer(DedupLayer::in_memory().ttl(Duration::from_secs(600)).capacity(10_000))
        .service(handler(pay));

    let payments = broker.queue("payments").consume();
    let report = serve(payments, stack)
        .observer(|_: &Origin, event: &Event<'_>| {
            if let Event::Duplicate { message } = event {
                println!("{} was paid already", message.id().unwrap_or_default());
            }
        })
        .with_graceful_shutdown(broker.drained("payments"))
        .await?;
    println!("\n{report}");
    Ok(())
}
