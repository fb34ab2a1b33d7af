use tower_mq_delivery::{Delivery, Message};
use tower_mq_testing::contract;

use super::measured;
use crate::MetricsLayer;

async fn check(layer: fn() -> MetricsLayer) {
    contract::check::<Delivery, _>(layer()).await;
    contract::check::<Message, _>(layer()).await;
}

#[tokio::test(start_paused = true)]
async fn both_places_keep_the_contract_without_a_recorder() {
    check(MetricsLayer::delivery).await;
    check(MetricsLayer::process).await;
}

#[test]
fn both_places_keep_the_contract_with_a_recorder() {
    measured(async |recorder| {
        check(MetricsLayer::delivery).await;
        check(MetricsLayer::process).await;
        assert!(!recorder.series().is_empty());
    });
}
