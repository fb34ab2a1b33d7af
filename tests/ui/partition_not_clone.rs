//! Each lane has a clone of what is inside; tower's rate limit has none.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_mq::{PartitionLayer, SettleLayer, handler, serve, source::Source};

const SECOND: Duration = Duration::from_secs(1);

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(PartitionLayer::by_key(8)).rate_limit(10, SECOND);
    let stack = stack.layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
