//! A number says nothing about the message.

use tower::ServiceBuilder;
use tower_mq::{SettleLayer, handler, serve, source::Source};

async fn handle(_: String) -> u32 {
    1
}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
