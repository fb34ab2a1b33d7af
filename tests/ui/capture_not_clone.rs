//! A handler is cloned for each message; a socket is not.

use tokio::net::UnixStream;
use tower::ServiceBuilder;
use tower_mq::{SettleLayer, handler, serve, source::Source};

async fn run(orders: impl Source + Send, socket: UnixStream) {
    let handle = move |_: String| async move { drop(socket) };
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle));
    let _ = serve(orders, stack).await;
}

fn main() {}
