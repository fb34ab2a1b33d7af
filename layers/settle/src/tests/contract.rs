//! Tower's contract, and ours.

use tower_mq_delivery::Delivery;
use tower_mq_testing::contract;

use crate::SettleLayer;

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    contract::check::<Delivery, _>(SettleLayer::new()).await;
    contract::check::<Delivery, _>(SettleLayer::new().confirmed()).await;
    contract::check::<Delivery, _>(SettleLayer::new().before()).await;
    contract::check::<Delivery, _>(SettleLayer::new().before().confirmed()).await;
}
