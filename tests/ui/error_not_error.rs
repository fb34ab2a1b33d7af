//! An error must be an error.

use tower::ServiceBuilder;
use tower_mq::{SettleLayer, handler, serve, source::Source};

struct Sold;

async fn handle(_: String) -> Result<(), Sold> {
    Err(Sold)
}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
