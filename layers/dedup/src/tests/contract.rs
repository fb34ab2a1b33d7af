//! Tower's contract and ours, and that of stores.

use std::time::Duration;

use tower_mq_delivery::Message;
use tower_mq_testing::contract;

use super::Remote;
use crate::{DedupLayer, Id, MemoryStore, StoreDown};

/// The ids of the check's messages begin anew with each case, and all services of a layer share a store.
fn id(message: &Message) -> Option<Id> {
    Some(Id::of(format!("{} {}", message.origin().id(), message.id()?)))
}

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    contract::check::<Message, _>(DedupLayer::in_memory().key(id)).await;
    // The check looks once for an answer that is there.
    contract::check::<Message, _>(DedupLayer::new(Remote::taking(Duration::ZERO)).key(id)).await;
}

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract_without_its_store() {
    let down = Remote::taking(Duration::ZERO);
    down.set_down(true);
    let layer = DedupLayer::new(down).key(id).on_store_error(StoreDown::Handle);
    contract::check::<Message, _>(layer).await;
}

#[cfg(feature = "testing")]
#[tokio::test(start_paused = true)]
async fn the_stores_keep_theirs() {
    crate::contract::check(MemoryStore::new()).await;
    crate::contract::check(Remote::new()).await;
}
