//! One argument too many.

use tower::ServiceBuilder;
use tower_mq::{Key, SettleLayer, handler, serve, source::Source};

async fn handle(_: Key, _: Key, _: Key, _: Key, _: Key, _: Key, _: Key, _: Key, _: Key) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
