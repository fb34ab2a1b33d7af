//! A batch layer, and a handler of single messages.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_mq::{
    Backoff, BatchLayer, PartitionLayer, RetryLayer, SettleLayer, handler, serve, source::Source,
};

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(BatchLayer::new(100))
        .layer(RetryLayer::in_place(BACKOFF))
        .service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
