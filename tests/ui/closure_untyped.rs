//! What a closure takes must be said.

use tower::ServiceBuilder;
use tower_mq::{SettleLayer, handler, serve, source::Source};

async fn run(orders: impl Source + Send) {
    let stack =
        ServiceBuilder::new().layer(SettleLayer::new()).service(handler(|order| async move { drop(order) }));
    let _ = serve(orders, stack).await;
}

fn main() {}
