//! Handles each message id once, also across processes.
//!
//! A queue delivers a message at least once: after a lost connection it comes again, although it was handled, or while
//! it still is. A producer that missed a confirmation sends it twice. [`DedupLayer`] remembers the ids of what was
//! handled, and acks what comes again without handling it.
//!
//! | the first delivery | a second one with its id, its *twin* |
//! |---|---|
//! | was acked | is acked, and not handled |
//! | is being handled | waits, and follows: is acked when the first one is, else is handled itself |
//! | failed, was released or is to be retried | is handled: the id was forgotten |
//! | was rejected, or its copy is a dead letter | is handled: whoever sends dead letters back means it |
//! | was cancelled, or its process died | is handled: the id was forgotten, at the latest when its lease ended |
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//!
//! use tower::{Service, ServiceBuilder, ServiceExt};
//! use tower_mq_dedup::DedupLayer;
//! use tower_mq_delivery::{BoxError, Message, Outcome};
//!
//! static PAYMENTS: AtomicU32 = AtomicU32::new(0);
//!
//! async fn pay(_: Message) -> Result<(), BoxError> {
//!     PAYMENTS.fetch_add(1, Relaxed);
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let mut stack = ServiceBuilder::new().layer(DedupLayer::in_memory()).service_fn(pay);
//! for _ in 0..3 {
//!     let message = Message::builder("5 pounds").id("payment-7").build();
//!     assert_eq!(stack.ready().await?.call(message).await?, Outcome::Ack);
//! }
//! assert_eq!(PAYMENTS.load(Relaxed), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not do
//! It explains duplicates; it does not make "exactly once" of a handler that dies in the middle of its work. Between the
//! end of the handler and the note in the store is a moment in which a crash makes the message come again and be
//! handled. A handler that writes to a database should write the id in the same transaction.
//!
//! An id is remembered for a time and up to a number ([`ttl`](DedupLayer::ttl), [`capacity`](DedupLayer::capacity)). It
//! is told apart from those of other queues ([`scope`](DedupLayer::scope)). A message without an id is handled and
//! counted ([`key`](DedupLayer::key)).
//!
//! # Order
//! Inside Settle, outside the dead letters, Batch, Retry and Timeout: it goes by the final outcome. A twin keeps its
//! place: its lane waits with it, and other lanes do not. It asks before it calls, so a batch layer inside still gathers:
//! at once with the store in memory; with a remote one the members come one round trip after the other.
//!
//! A delivery whose connection was lost while it runs cannot be settled any more. Its twin, which the broker delivers
//! again, waits for it here and is acked in its place.
//!
//! # When the store is down
//! [`on_store_error`](DedupLayer::on_store_error) says whether messages [wait](StoreDown::Wait) (the default) or are
//! [handled](StoreDown::Handle). A store that fails after the handler has ended makes no difference to its message, which
//! is acked; but the id is not remembered, so a duplicate may be handled again, as soon as the lease of the first one has
//! ended. Each failure is reported ([`StoreFailed`](tower_mq_delivery::Event::StoreFailed)); the first one in a row is
//! logged as a warning.
//!
//! # Shutdown
//! While the stack drains, a twin goes on waiting for one that runs in this process, which is about to end. What waits
//! for another process, or for the store, is released.
//!
//! # Cancel safety, Panics, Cost
//! See [`Dedup`].

mod claim;
#[cfg(feature = "testing")]
pub mod contract;
mod error;
pub mod future;
mod id;
mod layer;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod service;
mod settings;
mod store;

pub use error::LeaseLost;
pub use id::Id;
pub use layer::{DedupLayer, StoreDown};
pub use memory::{Begins, MemoryLease, MemoryStore, Wait};
#[cfg(feature = "redis")]
pub use redis::{RedisError, RedisLease, RedisOptions, RedisStore};
pub use service::Dedup;
pub use store::{Begun, Store};

#[cfg(test)]
mod tests;
