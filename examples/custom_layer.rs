//! A layer of one's own, and how to be sure that it keeps the contract: `cargo run --example custom_layer`,
//! `cargo test --example custom_layer`.
//!
//! The layer tells of calls that take long. It works with whatever carries messages, so it can stand anywhere in a
//! stack: outside Partition it times the queue, too; inside it times the handler; around a batch handler it times the
//! batch.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project::pin_project;
use tokio::time::{Instant, sleep};
use tower::{BoxError, Layer, Service, ServiceBuilder};
use tower_mq::{Carry, Message, PartitionLayer, SettleLayer, handler, serve, source::memory};

/// Tells of calls that take longer than a limit.
#[derive(Clone, Debug)]
struct SlowLayer {
    what: &'static str,
    limit: Duration,
}

impl SlowLayer {
    const fn new(what: &'static str, limit: Duration) -> Self {
        Self { what, limit }
    }
}

// Pure: nothing is started or registered here. It may run many times.
impl<S> Layer<S> for SlowLayer {
    type Service = Slow<S>;

    fn layer(&self, inner: S) -> Slow<S> {
        Slow { inner, settings: self.clone() }
    }
}

// The inner service's own `Clone` resets its readiness; there is none here that would have to be.
#[derive(Clone, Debug)]
struct Slow<S> {
    inner: S,
    settings: SlowLayer,
}

impl<S, R> Service<R> for Slow<S>
where
    S: Service<R>,
    R: Carry,
{
    type Response = S::Response;
    // This layer cannot fail, so the error stays what it is.
    type Error = S::Error;
    type Future = SlowFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let messages = request.messages().len();
        // On the instance that was asked whether it is ready, and not on a clone of it.
        SlowFuture {
            inner: self.inner.call(request),
            settings: self.settings.clone(),
            messages,
            begun: Instant::now(),
        }
    }
}

/// The response of [`Slow`]. It has a name, so nothing is boxed.
#[pin_project]
struct SlowFuture<F> {
    #[pin]
    inner: F,
    settings: SlowLayer,
    messages: usize,
    begun: Instant,
}

impl<F: Future> Future for SlowFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.inner.poll(cx));
        let took = this.begun.elapsed();
        if took > this.settings.limit {
            println!("{}: {} message(s) took {} ms", this.settings.what, this.messages, took.as_millis());
        }
        Poll::Ready(output)
    }
}

async fn book(apples: String) -> Result<(), BoxError> {
    sleep(Duration::from_millis(10 * apples.parse::<u64>()?)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let broker = memory::Broker::new();
    for apples in ["1", "20", "2"] {
        broker.publish("orders", Message::builder(apples).key("alice").build())?;
    }
    let stack = ServiceBuilder::new()
        .layer(SlowLayer::new("with its time in the queue", Duration::from_millis(100)))
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(SlowLayer::new("the handler", Duration::from_millis(100)))
        .service(handler(book));

    let orders = broker.queue("orders").consume();
    println!("{}", serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt, service_fn};
    use tower_mq::{
        Delivery,
        testing::{contract, turn},
    };

    use super::*;

    fn layer() -> SlowLayer {
        SlowLayer::new("the test", Duration::from_secs(1))
    }

    /// All that can go wrong in a stack: late readiness, clones, dropped futures, errors.
    #[tokio::test(start_paused = true)]
    async fn it_keeps_the_contract_inside_and_outside_of_settle() {
        contract::check::<Message, _>(layer()).await;
        contract::check::<Delivery, _>(layer()).await;
    }

    /// It queues nothing, so the turn is not its business.
    #[tokio::test]
    async fn it_leaves_the_turn_alone() {
        let (turn, probe) = turn();
        let mut message = Message::new("3");
        let _before = message.set_turn(turn);
        layer()
            .layer(service_fn(async |_: Message| Ok::<_, BoxError>(())))
            .oneshot(message)
            .await
            .expect("it is handled");
        assert!(!probe.is_passed());
    }
}
