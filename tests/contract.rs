//! Every layer keeps the contract, alone and in the stack.

use std::time::Duration;

use tower::{Layer, ServiceBuilder, layer::layer_fn};
use tower_mq::{
    AnswerLayer, Backoff, BatchLayer, BreakerLayer, CatchPanicLayer, DeadLetterLayer, DedupLayer, Delivery,
    Message, MetricsLayer, PartitionLayer, RetryLayer, SettleLayer, TraceLayer,
    source::memory::Broker,
    testing::{
        Recorder,
        contract::{Inner, check},
    },
};

#[tokio::test(start_paused = true)]
async fn lanes() {
    check::<Delivery, _>(PartitionLayer::by_key(4).capacity(8)).await;
    check::<Message, _>(PartitionLayer::by_key(1).capacity(1)).await;
}

#[tokio::test(start_paused = true)]
async fn inline_lanes() {
    check::<Delivery, _>(PartitionLayer::by_key(4).capacity(8).inline()).await;
    check::<Message, _>(PartitionLayer::by_key(1).capacity(1).inline()).await;
}

#[tokio::test(start_paused = true)]
async fn workers_over_keys() {
    check::<Delivery, _>(PartitionLayer::per_key(4).capacity(8)).await;
    check::<Message, _>(PartitionLayer::unordered(2).capacity(3)).await;
}

#[tokio::test(start_paused = true)]
async fn inline_workers_over_keys() {
    check::<Delivery, _>(PartitionLayer::per_key(4).capacity(8).inline()).await;
    check::<Message, _>(PartitionLayer::unordered(2).capacity(3).inline()).await;
}

#[tokio::test(start_paused = true)]
async fn settle() {
    check::<Delivery, _>(SettleLayer::new()).await;
    check::<Delivery, _>(SettleLayer::new().before()).await;
    check::<Delivery, _>(SettleLayer::new().confirmed()).await;
}

#[tokio::test(start_paused = true)]
async fn what_stands_outside_of_lanes() {
    check::<Delivery, _>(MetricsLayer::delivery()).await;
    check::<Delivery, _>(TraceLayer::new()).await;
    check::<Delivery, _>(BreakerLayer::new()).await;
}

#[tokio::test(start_paused = true)]
async fn what_stands_inside_of_settle() {
    check::<Message, _>(DedupLayer::in_memory()).await;
    check::<Message, _>(DeadLetterLayer::new(Broker::new().publisher().to("orders.dead"))).await;
    check::<Message, _>(BatchLayer::new(4)).await;
    check::<Message, _>(RetryLayer::in_place(backoff())).await;
    check::<Message, _>(MetricsLayer::process()).await;
    check::<Message, _>(CatchPanicLayer::new()).await;
    check::<Message, _>(AnswerLayer::new()).await;
}

fn backoff() -> Backoff {
    Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn the_stack() {
    let dead = Broker::new().publisher().to("orders.dead");
    let stack = ServiceBuilder::new()
        .layer(MetricsLayer::delivery())
        .layer(TraceLayer::new())
        .layer(BreakerLayer::new())
        .layer(PartitionLayer::by_key(4))
        .layer(SettleLayer::new())
        .layer(DedupLayer::in_memory())
        .layer(DeadLetterLayer::new(dead))
        .layer(RetryLayer::in_place(backoff()).attempts(3))
        .layer(Recorder::new())
        .timeout(Duration::from_secs(10_000))
        .layer(MetricsLayer::process())
        .into_inner();
    check::<Delivery, _>(layer_fn(|inner: Inner| stack.layer(inner))).await;
}

#[tokio::test(start_paused = true)]
async fn the_stack_with_batches() {
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(4).capacity(12))
        .layer(SettleLayer::new())
        .layer(BatchLayer::new(3))
        .layer(RetryLayer::in_place(backoff()).attempts(3))
        .into_inner();
    check::<Delivery, _>(layer_fn(|inner: Inner| stack.layer(inner))).await;
}
