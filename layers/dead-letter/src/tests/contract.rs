//! Tower's contract, and ours.

use tower_mq_delivery::Message;
use tower_mq_testing::contract;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    contract::check::<Message, _>(layer(&Target::default())).await;
}

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract_while_the_target_is_down() {
    let quick = layer(&Target::new(vec![Hang { stored: false }; 10_000])).timeout(SECOND).attempts(1);
    contract::check::<Message, _>(quick.backoff(Duration::ZERO, Duration::ZERO)).await;
}
