use tower_mq_delivery::{Delivery, Message};
use tower_mq_testing::contract;

use crate::MetricsLayer;

#[tokio::test(start_paused = true)]
async fn both_places_keep_the_contract() {
    contract::check::<Delivery, _>(MetricsLayer::delivery()).await;
    contract::check::<Message, _>(MetricsLayer::delivery()).await;
    contract::check::<Delivery, _>(MetricsLayer::process()).await;
    contract::check::<Message, _>(MetricsLayer::process()).await;
}
