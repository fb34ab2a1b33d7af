//! A layer outside Partition replaced the request.

use tower::ServiceBuilder;
use tower_mq::{Delivery, PartitionLayer, SettleLayer, handler, serve, source::Source};

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .map_request(|delivery: Delivery| (1, delivery))
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
