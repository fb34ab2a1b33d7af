//! Tower's contract, and ours.

use tower_mq_delivery::{Delivery, Message};
use tower_mq_testing::contract;

use super::{SECOND, quick};
use crate::BreakerLayer;

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    contract::check::<Delivery, _>(BreakerLayer::new()).await;
    contract::check::<Delivery, _>(BreakerLayer::new().window(SECOND)).await;
    contract::check::<Message, _>(BreakerLayer::new()).await;
    // Opens at the first error.
    contract::check::<Delivery, _>(quick().minimum(1)).await;
    contract::check::<Delivery, _>(quick().minimum(1).window(60 * SECOND)).await;
}
