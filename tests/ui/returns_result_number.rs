//! A number says nothing about the message, nor does a result of it.

use tower::ServiceBuilder;
use tower_mq::{BoxError, SettleLayer, handler, serve, source::Source};

async fn handle(_: String) -> Result<u32, BoxError> {
    Ok(1)
}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
