//! A type that cannot be decoded.

use tower::ServiceBuilder;
use tower_mq::{Json, SettleLayer, handler, serve, source::Source};

struct Order;

async fn handle(_: Json<Order>) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
