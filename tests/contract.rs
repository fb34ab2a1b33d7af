//! Every layer keeps the contract, alone and in the stack.

use tower::{Layer, ServiceBuilder, layer::layer_fn};
use tower_mq::{
    Delivery, Message, PartitionLayer, SettleLayer,
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
async fn the_stack() {
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(4))
        .layer(SettleLayer::new())
        .layer(Recorder::new())
        .timeout(std::time::Duration::from_secs(10_000))
        .into_inner();
    check::<Delivery, _>(layer_fn(|inner: Inner| stack.layer(inner))).await;
}
