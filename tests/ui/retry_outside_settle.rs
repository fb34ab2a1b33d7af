//! A delivery cannot be retried: it is settled once.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_mq::{Backoff, RetryLayer, SettleLayer, handler, serve, source::Source};

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::in_place(BACKOFF))
        .layer(SettleLayer::new())
        .service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
