//! A publisher of dead letters takes publications.

use tower::{ServiceBuilder, service_fn};
use tower_mq::{BoxError, DeadLetterLayer, Message, SettleLayer, handler, serve, source::Source};

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(service_fn(|_: Message| async { Ok::<(), BoxError>(()) })))
        .service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
