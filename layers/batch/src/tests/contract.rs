//! Tower's contract, and ours.

use std::time::Duration;

use tower_mq_delivery::Message;
use tower_mq_testing::contract;

use crate::BatchLayer;

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    contract::check::<Message, _>(BatchLayer::new(1)).await;
    contract::check::<Message, _>(BatchLayer::new(3).wait(Duration::ZERO)).await;
    contract::check::<Message, _>(BatchLayer::new(3).ready()).await;
    contract::check::<Message, _>(BatchLayer::new(1).capacity(1)).await;
    contract::check::<Message, _>(BatchLayer::new(8).max_bytes(1).wait(Duration::ZERO)).await;
    let grouped = BatchLayer::new(8).wait(Duration::ZERO).group_by(|message| message.key().cloned());
    contract::check::<Message, _>(grouped.groups(2)).await;
}
