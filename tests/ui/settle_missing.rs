//! Nobody settles.

use tower_mq::{handler, serve, source::Source};

async fn handle(_: String) {}

async fn run(orders: impl Source + Send) {
    let _ = serve(orders, handler(handle)).await;
}

fn main() {}
