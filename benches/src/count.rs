//! `count STACK DELIVERIES [KEYS]`: runs one stack over so many deliveries, to be counted by callgrind.
//!
//! The instructions for each delivery are the slope between two runs of different length: what a run costs once is
//! not in it. `benches/run.sh` does that for all stacks and compares with the bounds. Allocations are counted here.

mod allocator;
mod harness;

use std::{
    convert::Infallible,
    hint::black_box,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::stream;
use pin_project::pin_project;
use tokio::runtime::Runtime;
use tower::{ServiceBuilder, service_fn};
use tower_layer::Layer;
use tower_mq::{
    Counts, Delivery, Message, PartitionLayer, SettleLayer, serve,
    source::{from_stream, memory},
};
use tower_service::Service;

use crate::harness::{Served, messages, queue};

fn main() {
    harness::run(|runtime, stack, deliveries, keys| {
        prepare(runtime, stack, messages(deliveries, keys, false))
    });
}

fn prepare(runtime: &Runtime, stack: &str, messages: Vec<Message>) -> Served {
    let handler = service_fn(async |delivery: Delivery| {
        black_box(delivery.message().payload().len());
        Ok::<_, Infallible>(())
    });
    match stack {
        // The deliveries alone: taken, looked at and dropped.
        "source" => Box::pin(async move {
            let mut counts = Counts::default();
            for message in messages {
                drop(black_box(Delivery::detached(message)));
                counts.taken += 1;
            }
            counts
        }),
        "sequential" => bare(messages, handler),
        "empty_layers_8" => {
            let four = |inner| Empty(Empty(Empty(Empty(inner))));
            bare(messages, four(Empty(Empty(Empty(Empty(handler))))))
        }
        "by_key" => bare(messages, ServiceBuilder::new().layer(PartitionLayer::by_key(8)).service(handler)),
        "by_key_inline" => {
            bare(messages, ServiceBuilder::new().layer(PartitionLayer::by_key(8).inline()).service(handler))
        }
        "per_key" => bare(messages, ServiceBuilder::new().layer(PartitionLayer::per_key(8)).service(handler)),
        "per_key_inline" => {
            bare(messages, ServiceBuilder::new().layer(PartitionLayer::per_key(8).inline()).service(handler))
        }
        "settled_sequential" => settled(runtime, messages, false),
        "settled_by_key" => settled(runtime, messages, true),
        unknown => panic!("no stack is called `{unknown}`"),
    }
}

/// The driver and the stack alone: nobody needs to settle these deliveries.
fn bare<S>(messages: Vec<Message>, service: S) -> Served
where
    S: Service<Delivery> + Send + 'static,
    S::Error: Into<tower_mq::BoxError>,
    S::Future: Send,
{
    let source = from_stream(stream::iter(messages.into_iter().map(Delivery::detached)));
    Box::pin(async move { serve(source, service).await.expect("a stream ends well").counts })
}

/// The same with the embedded broker, its ledger, and a settle layer around the handler.
fn settled(runtime: &Runtime, messages: Vec<Message>, keyed: bool) -> Served {
    let _entered = runtime.enter();
    let (consumer, handler) = queue(&memory::Broker::new(), messages);
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler);
    match keyed {
        false => Box::pin(async move { serve(consumer, stack).await.expect("it is closed").counts }),
        true => Box::pin(async move {
            serve(consumer, PartitionLayer::by_key(8).layer(stack)).await.expect("it is closed").counts
        }),
    }
}

/// A layer that does nothing, written as one writes a layer: a service, a named future, `poll_ready` forwarded.
#[derive(Clone)]
struct Empty<S>(S);

impl<S: Service<R>, R> Service<R> for Empty<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = EmptyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        EmptyFuture { inner: self.0.call(request) }
    }
}

#[pin_project]
struct EmptyFuture<F> {
    #[pin]
    inner: F,
}

impl<F: Future> Future for EmptyFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx)
    }
}
