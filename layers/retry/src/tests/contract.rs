//! Tower's contract, and ours.

use tower_mq_delivery::Message;
use tower_mq_testing::contract;

use super::{MS, backoff};
use crate::{RetryLayer, budget::TpsBudget};

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    contract::check::<Message, _>(RetryLayer::in_place(backoff())).await;
    contract::check::<Message, _>(RetryLayer::in_place(backoff()).attempts(1)).await;
    contract::check::<Message, _>(RetryLayer::in_place(backoff()).elapsed(15 * MS)).await;
    contract::check::<Message, _>(RetryLayer::park(backoff())).await;
    contract::check::<Message, _>(RetryLayer::requeue(backoff())).await;
    let budget = TpsBudget::new(1_000 * MS, 1, 0.5);
    contract::check::<Message, _>(RetryLayer::in_place(backoff()).budget(budget)).await;
}
