//! A publisher of dead letters takes publications.

#[path = "../support/stand_in/mod.rs"]
mod stand_in;

use tower::{ServiceBuilder, service_fn};
use tower_mq::{BoxError, Message, SettleLayer, handler, serve, source::Source};

use stand_in::DeadLetterLayer;

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(service_fn(|_: Message| async { Ok::<(), BoxError>(()) })))
        .service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
