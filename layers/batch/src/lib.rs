//! Gathers messages into batches, each lane its own, in order.
//!
//! For handlers that are cheaper with many messages at a time: bulk inserts, bulk requests, aggregation.
//! [`BatchLayer`] turns a service of [`Batch<Message>`](tower_mq_delivery::Batch) into one of
//! [`Message`](tower_mq_delivery::Message), so everything outside of it goes on to see single messages with outcomes of
//! their own.
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_mq_batch::BatchLayer;
//! use tower_mq_delivery::{Batch, BoxError, Delivery, Message, Outcome};
//! use tower_mq_partition::PartitionLayer;
//! use tower_mq_settle::SettleLayer;
//!
//! async fn insert(rows: Batch<Message>) -> Result<Vec<Result<(), BoxError>>, BoxError> {
//!     // One round trip for all of them, and a result for each.
//!     Ok(rows.iter().map(|row| if row.payload().is_empty() { Err("no data".into()) } else { Ok(()) }).collect())
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let stack = ServiceBuilder::new()
//!     .layer(PartitionLayer::by_key(8))
//!     .layer(SettleLayer::new())
//!     .layer(BatchLayer::new(100))
//!     .service(service_fn(insert));
//!
//! let row = Delivery::detached(Message::builder("a row").key("customer-7").build());
//! assert_eq!(stack.oneshot(row).await?.outcome, Outcome::Ack);
//! # Ok(())
//! # }
//! ```
//!
//! # What closes a batch
//! [`Batch::closed_by`](tower_mq_delivery::Batch::closed_by) tells the handler.
//!
//! | [`ClosedBy`](tower_mq_delivery::ClosedBy) | when |
//! |---|---|
//! | `Size` | it has as many members as [`BatchLayer::new`] says |
//! | `Bytes` | its payloads are as long together as [`max_bytes`](BatchLayer::max_bytes) says |
//! | `Wait` | its first member came [`wait`](BatchLayer::wait) ago, 10 ms by default; later ones do not put it off |
//! | `Idle` | its lane has nothing more to give, with [`ready`](BatchLayer::ready) |
//! | `Window` | the whole window of the source is here: nothing more could come |
//! | `Groups` | more than [`groups`](BatchLayer::groups) would be open, and it is the oldest |
//! | `Drain` | the stack is about to end |
//!
//! `Size`, `Bytes` and `Groups` end it for good. In the other cases it may start, and takes in what still comes until it
//! does: while the batch before it runs, and while the inner service is not ready. So a slow handler is given larger
//! batches, up to the size, and not more of them.
//!
//! A batch is never empty, and its members are of one generation, one group
//! ([`group_by`](BatchLayer::group_by)) and one driver or lane. Members whose generation has ended are not handled: they
//! are reported as [`NotHandled`](tower_mq_delivery::Event::NotHandled) and released, and so are those that have not
//! started when a stack [releases](tower_mq_delivery::Drain::Release) on its way to its end.
//!
//! # Order
//! A message enters its batch inside `call`, and its [turn](tower_mq_delivery::Turn) is passed then. Each driver or lane
//! has batches of its own, which clones of the service share: the members of a batch are in the order of the calls,
//! and the next batch starts when the one before it has been answered. Under `PartitionLayer::by_key(n)`, n batches run
//! at a time and every key is in order; under `per_key(n)` a key is held until its batch is answered, so no batch has a
//! key twice.
//!
//! With groups, the order is that of each group, and batches of different groups run one after the other, those first
//! that were due first.
//!
//! - Put Settle, Dedup and `DeadLetter` outside: they see each member's own outcome.
//! - Put Retry inside: it repeats the failed members alone, before the next batch starts. Outside, a failed member joins
//!   a later batch, behind younger messages of its key.
//! - A timeout inside times the handler of a batch; outside it counts the time in which the batch gathers, too.
//! - Put a concurrency limit inside, where it counts batches. Outside it counts members: a batch is then never larger
//!   than the limit, and each one waits its whole [`wait`](BatchLayer::wait), also with [`ready`](BatchLayer::ready).
//!
//! # Answers
//! One outcome for all members, or one for each, in order:
//! [`IntoAnswer<Batch<Message>>`](tower_mq_delivery::IntoAnswer) says what a handler may return. One failed member leaves
//! the outcomes of the others alone. A failed batch fails its members and no others, each with a
//! [`SharedError`](tower_mq_delivery::SharedError). If there is not one result for each, every member fails with
//! [`WrongLength`](tower_mq_delivery::WrongLength).
//!
//! # Bounds
//! `poll_ready` reserves a place out of [`capacity`](BatchLayer::capacity), which is free again when the member is
//! answered or gone. It cannot know for which lane, so all lanes share them. They cannot lock each other up: when all
//! places are taken and nothing runs, a batch is closed.
//!
//! # Cancel safety
//! A response future that is dropped takes its message out of a batch that has not started. Afterwards its result is
//! dropped, and the others get theirs; when nobody waits any more the inner future is dropped, too.
//!
//! # Errors
//! The error is always a [`BoxError`](tower_mq_delivery::BoxError): the member's own, or one of these.
//! - [`SharedError`](tower_mq_delivery::SharedError): the batch failed. An inner service whose `poll_ready` fails is told
//!   so to all that wait, and from then on by `poll_ready` of this layer; what runs is finished.
//! - [`WrongLength`](tower_mq_delivery::WrongLength): the handler did not return one result for each member.
//! - [`Closed`]: the runtime was shut down.
//! - [`NoRuntime`]: there was none.
//!
//! # Panics
//! A panic of the inner service fails its batch with [`Panicked`](tower_mq_delivery::Panicked), is reported and logged;
//! the next batch is run, after a panic in `poll_ready` or `call` by a fresh clone. A panic of the function for groups
//! goes on in `call`.
//!
//! # Tasks
//! A driver or lane that has members here has a task, with a clone of the inner service. It starts with the first
//! member and ends when nothing is open: an idle stack has no task and no timer here. It needs a tokio runtime with time.
//!
//! # Cost
//! For each batch a few allocations, among them the batch itself; for each member one look at the batches that are open
//! for its lane.

mod error;
pub mod future;
mod gathering;
mod held;
mod idle;
mod layer;
mod owners;
mod seats;
mod service;
mod watch;
mod worker;

pub use error::{Closed, NoRuntime};
pub use layer::BatchLayer;
pub use service::Batcher;

#[cfg(test)]
mod tests;
