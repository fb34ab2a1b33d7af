//! A plain stream cannot say why it ended.

use futures_util::stream;
use tower::ServiceBuilder;
use tower_mq::{Delivery, SettleLayer, handler, serve};

async fn handle(_: String) {}

async fn run(orders: Vec<Delivery>) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(stream::iter(orders), stack).await;
}

fn main() {}
