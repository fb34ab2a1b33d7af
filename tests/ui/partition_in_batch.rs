//! Partition inside Batch: a batch has no key.

use tower::ServiceBuilder;
use tower_mq::{Batch, BatchLayer, PartitionLayer, SettleLayer, handler, serve, source::Source};

async fn handle_all(_: Batch<String>) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(BatchLayer::new(100))
        .layer(PartitionLayer::by_key(8))
        .service(handler(handle_all));
    let _ = serve(orders, stack).await;
}

fn main() {}
