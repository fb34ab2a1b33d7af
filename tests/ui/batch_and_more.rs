//! A batch stands alone.

use tower::ServiceBuilder;
use tower_mq::{Batch, Key, SettleLayer, handler, serve, source::Source};

async fn handle(_: Batch<String>, _: Key) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
