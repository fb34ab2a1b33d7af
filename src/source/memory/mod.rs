//! A broker inside this process: nothing to install, nothing to start.
//!
//! It is a real broker: named queues, windows, redelivery with a count of attempts, delays, dead letters, message
//! groups, lost connections. What it stores lives as long as the process.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_mq::BoxError> {
//! use tower::service_fn;
//! use tower_mq::{Delivery, Message, Outcome, serve, source::{Source, memory::Broker}};
//!
//! let broker = Broker::new();
//! broker.publish("orders", Message::builder("two teas").key("table-7").build())?;
//! broker.publish("orders", Message::builder("the bill").key("table-7").build())?;
//!
//! let orders = broker.queue("orders").window(64).consume();
//! let handle = orders.handle();
//! let service = service_fn(move |delivery: Delivery| {
//!     if delivery.message().payload() == "the bill" {
//!         handle.close(Default::default());
//!     }
//!     async move { delivery.settle(Outcome::Ack).await }
//! });
//! let report = serve(orders, service).await?;
//! assert_eq!(report.counts.acked, 2);
//! assert_eq!(broker.len("orders"), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What each outcome means
//!
//! | outcome | here |
//! |---|---|
//! | Ack | the message is forgotten |
//! | Release | back to its place at the front of the queue; counts as no attempt |
//! | Retry | the attempt is counted; after the delay, back to its place: in front of all that were published later |
//! | Reject | moved to the dead letters: [`Queue::dead_letters`] |
//!
//! Every settlement is stored when [`settle`](tower_mq_delivery::Acker::settle) returns, so it is
//! [`Confirmed`](tower_mq_delivery::Settlement::Confirmed) at once.
//!
//! # Order
//! The order of publishing. A message that comes again comes before all that were published later and are still in the
//! queue; those that were handed out meanwhile have overtaken it. In a [grouped](Queue::grouped) queue nothing
//! overtakes within a key, not even a retry with a delay.
//!
//! # Attempts
//! Only [`Outcome::Retry`](tower_mq_delivery::Outcome::Retry) counts. A release, a dropped delivery and a lost
//! connection do not: nobody failed. Each of them marks the message as redelivered.
//!
//! # Cost
//! A message costs one allocation, when it is made. It is handed out as it is stored, and settling it costs nothing more;
//! one that comes again while somebody still holds its last delivery costs another. One lock for the whole broker, taken once for a delivery and once for its settlement.

mod broker;
mod connection;
mod consumer;
mod letter;
mod line;
mod publisher;
mod queue;
mod state;
mod subscription;
#[cfg(test)]
mod tests;
mod wakes;

pub use broker::{Broker, Depth};
pub use consumer::Consumer;
pub use publisher::{PublishError, Publisher};
pub use queue::Queue;
pub use tower_mq_delivery::{DEAD_LETTER_ATTEMPTS, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON};
