//! `canonical STACK DELIVERIES [KEYS]`: the whole stack, as `count` runs the small ones, with a recorder or without.
//!
//! A program of its own: how much the compiler inlines depends on how many stacks there are in one.

mod allocator;
mod harness;
mod recorder;

use std::time::Duration;

use tokio::runtime::Runtime;
use tower::{ServiceBuilder, limit::ConcurrencyLimitLayer, timeout::TimeoutLayer};
use tower_mq::{
    Backoff, BreakerLayer, DeadLetterLayer, DedupLayer, Message, MetricsLayer, PartitionLayer, RetryLayer,
    SettleLayer, TraceLayer, serve, source::memory,
};

use crate::harness::{Served, messages, queue};

fn main() {
    harness::run(|runtime, stack, deliveries, keys| {
        prepare(runtime, stack, messages(deliveries, keys, true))
    });
}

/// The whole stack, without batches: all that stands between a queue and its handler in production.
fn prepare(runtime: &Runtime, stack: &str, messages: Vec<Message>) -> Served {
    match stack {
        "canonical" => {}
        "canonical_recorded" => recorder::install(),
        unknown => panic!("no stack is called `{unknown}`"),
    }
    let _entered = runtime.enter();
    let broker = memory::Broker::new();
    let (consumer, handler) = queue(&broker, messages);
    let ms = Duration::from_millis;
    let stack = ServiceBuilder::new()
        .layer(MetricsLayer::delivery())
        .layer(TraceLayer::new())
        .layer(BreakerLayer::new())
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(DedupLayer::in_memory().capacity(4096))
        .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead")))
        .layer(RetryLayer::in_place(Backoff::exponential(ms(10), ms(1000))).attempts(3))
        .layer(ConcurrencyLimitLayer::new(64))
        .layer(TimeoutLayer::new(ms(5000)))
        .layer(MetricsLayer::process())
        .service(handler);
    Box::pin(async move { serve(consumer, stack).await.expect("it is closed").counts })
}
