//! Handles the deliveries of a queue side by side, those of one key in order.
//!
//! A stack handles one delivery at a time, in the order of its queue. [`PartitionLayer`] takes over that order: it
//! passes the [turn](tower_mq_delivery::Turn) of a delivery as soon as the delivery is queued, so that the driver takes
//! the next one, and n of them run at a time.
//!
//! ```
//! use tower::{Layer, Service, ServiceExt, service_fn};
//! use tower_mq_delivery::{BoxError, Message};
//! use tower_mq_partition::PartitionLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let handler = service_fn(async |message: Message| Ok::<_, BoxError>(message.payload().len()));
//! let mut orders = PartitionLayer::by_key(8).layer(handler);
//!
//! let order = Message::builder("3 pounds of coffee").key("customer-7").build();
//! assert_eq!(orders.ready().await?.call(order).await?, 18);
//! # Ok(())
//! # }
//! ```
//!
//! Three modes say who is in order with whom, and each can do without tasks: see [`PartitionLayer`].
//!
//! # Order
//! A delivery enters its queue inside `call`, on the thread of the caller: the order of calls is the order of the key.
//! Clones share the lanes, so the order holds across them. The next delivery of a key is not started before the last
//! one has been answered and its future has been dropped.
//!
//! - A retry *outside* of this layer sends its delivery to the end of the key's queue and so breaks the order; put it
//!   inside. A timeout outside also counts the time in the queue.
//! - Put it outside of the layer that settles: a delivery whose caller goes away is then given back only when its
//!   handler has been dropped, so it never runs twice at a time. Deliveries whose generation ended while they were
//!   queued reach that layer, which does not start them.
//! - Put it outside of a batch layer. Each lane has turns of its own, so it gathers batches of its own, in order. With
//!   [`per_key`](PartitionLayer::per_key), a key is held until its batch is answered, and no batch has one key twice.
//! - A delivery that [parks](tower_mq_delivery::Turn::park) keeps its key and frees its worker with
//!   [`per_key`](PartitionLayer::per_key) and [`unordered`](PartitionLayer::unordered). Lanes, and whatever runs inline,
//!   wait for it. One that resumes runs beside what its worker took meanwhile: for that time more than n handlers run. A
//!   concurrency limit inside bounds them.
//!
//! # Bounds
//! `poll_ready` reserves a place out of [`capacity`](PartitionLayer::capacity), so no more deliveries than that are
//! queued and running, and a lane that is hot takes the slack of the others. A place is free again when the response
//! has been handed over, or when a cancelled delivery has been dropped by its lane. Memory grows with the capacity and
//! never with the number of keys: a key is remembered only while something of it is queued or runs.
//!
//! The lane of a key is the same in every process, so a hostile producer can find keys that all go to one lane, and
//! make that lane slow. It cannot slow down the others before the capacity is used up. With `per_key`, keys whose
//! 64-bit hashes are equal wait for each other, and nobody else does.
//!
//! # Cancel safety
//! A response future that is dropped cancels its delivery: queued, it is skipped; running, its handler is dropped at
//! the next poll of the lane, inline at once.
//!
//! # Errors
//! The error is always a [`BoxError`](tower_mq_delivery::BoxError): the inner service's own, or one of these.
//! - An inner service whose `poll_ready` fails ends the lane: all that it has queued, and from then on `poll_ready` of
//!   this layer, fail with that error, as a [`SharedError`](tower_mq_delivery::SharedError). What runs is finished.
//! - [`Closed`]: the runtime of the lanes was shut down.
//! - [`NoRuntime`]: the lanes could not be started.
//!
//! # Panics
//! A panic of the inner service goes on in the response future of the delivery that met it. The lane lives on; after a
//! panic in `poll_ready` or `call`, with a fresh clone of the service.
//!
//! # Tasks
//! Nothing is started before there is a delivery. Then each lane or worker is a task that owns a clone of the inner
//! service. When the last clone of [`Partition`] is dropped, they finish what is queued, and end.
//! [`inline`](PartitionLayer::inline) starts none.
//!
//! # Tracing
//! A delivery is handled in the [span](tracing::Span) that was entered when it was called, in whatever task. So a layer
//! that traces stands outside, and sees the time in the queue, too.
//!
//! Lanes report how many deliveries wait in them, whenever one comes or begins
//! ([`Event::Lane`](tower_mq_delivery::Event::Lane)).
//!
//! # Cost
//! In steady state nothing is allocated for a delivery. Handlers that are ready at once gain nothing from lanes: one
//! loop costs less than two.

mod capacity;
mod error;
pub mod future;
mod inline;
mod key;
mod lane;
mod layer;
mod pool;
mod queues;
mod service;
mod slots;
mod spans;
mod sync;
mod ticket;
mod worker;

pub use error::{Closed, NoRuntime};
pub use key::LaneKey;
pub use layer::PartitionLayer;
pub use service::Partition;
