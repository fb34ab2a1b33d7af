//! A function that is not async.

use tower::ServiceBuilder;
use tower_mq::{SettleLayer, handler, serve, source::Source};

fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
