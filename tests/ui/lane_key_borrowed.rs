//! A lane's key is hashed; it borrows nothing of the message.

use tower::ServiceBuilder;
use tower_mq::{PartitionLayer, SettleLayer, handler, serve, source::Source};

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(8).with(|message| message.header("tenant")))
        .layer(SettleLayer::new())
        .service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
