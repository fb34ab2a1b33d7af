//! A handler of batches, and no batch layer.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_mq::{Backoff, Batch, PartitionLayer, RetryLayer, SettleLayer, handler, serve, source::Source};

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));

async fn handle_all(_: Batch<String>) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(RetryLayer::in_place(BACKOFF))
        .service(handler(handle_all));
    let _ = serve(orders, stack).await;
}

fn main() {}
