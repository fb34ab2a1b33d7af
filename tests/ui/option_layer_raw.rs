//! An optional layer over a service of other types.

use std::{io, time::Duration};

use tower::ServiceBuilder;
use tower_mq::{Backoff, Message, RetryLayer, SettleLayer, serve, source::Source};

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .option_layer(Some(RetryLayer::in_place(BACKOFF)))
        .service_fn(|_: Message| async { Ok::<(), io::Error>(()) });
    let _ = serve(orders, stack).await;
}

fn main() {}
