//! A value that must stay on its thread is held across an await.

use std::rc::Rc;

use tower::ServiceBuilder;
use tower_mq::{SettleLayer, handler, serve, source::Source};

async fn handle(_: String) {
    let count = Rc::new(1);
    tokio::task::yield_now().await;
    drop(count);
}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
