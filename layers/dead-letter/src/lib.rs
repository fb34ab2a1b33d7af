//! Stores a confirmed copy of each rejected message before it is acked.
//!
//! [`DeadLetterLayer`] stands between Settle and the handler. When a message is rejected, it publishes a copy, waits
//! until the broker has confirmed it, and answers with an ack. If the copy cannot be stored, the message is released,
//! and comes again. So a rejected message is in one place or the other at any time, on brokers too that throw rejects
//! away, and the dead letters can be on another broker.
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_mq_dead_letter::DeadLetterLayer;
//! use tower_mq_delivery::{BoxError, FailureExt, Message, Outcome, Publication, Receipt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! // Sources bring publishers: `publisher.to("orders.dead")`.
//! let publisher = service_fn(|copy: Publication| async move {
//!     println!("{:?}, {:?}", copy.message.payload(), copy.headers);
//!     Ok::<_, BoxError>(Receipt::new())
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(DeadLetterLayer::new(publisher))
//!     .service_fn(|order: Message| async move {
//!         let apples = std::str::from_utf8(order.payload()).or_reject()?;
//!         apples.parse::<u32>().or_reject()?;
//!         Ok::<_, BoxError>(())
//!     });
//! assert_eq!(stack.oneshot(Message::new("a dozen")).await?, Outcome::Ack);
//! # Ok(())
//! # }
//! ```
//!
//! # What becomes of a message
//!
//! | the handler | the answer |
//! |---|---|
//! | rejects it: with [`Outcome::Reject`](tower_mq_delivery::Outcome::Reject), with an error that has [decided](tower_mq_delivery::Failure) so, or with one that the [policy](DeadLetterLayer::on_error) judges so | ack, when the copy is confirmed; release, if it could not be stored |
//! | fails otherwise | what the error or the policy says. The error ends here: it is judged once |
//! | answers with another outcome | that outcome |
//!
//! # The copy
//! Payload, key, id, correlation id, content type, timestamp and headers are those of the message, byte by byte and with
//! their types, as far as the publisher's broker has them; what belongs to the delivery alone, such as counts of attempts,
//! is not. These headers are added, or replace those of an earlier life:
//!
//! | header | value |
//! |---|---|
//! | [`dead-letter-reason`](DEAD_LETTER_REASON) | why it was rejected: the reason, which may be the error's text. Cut after 1,024 bytes |
//! | [`dead-letter-attempts`](DEAD_LETTER_ATTEMPTS) | how many attempts there were; 2 for a message that came again and whose attempts nobody counts |
//! | [`dead-letter-tries`](DEAD_LETTER_TRIES) | how often the last delivery was tried in place |
//! | [`dead-letter-queue`](DEAD_LETTER_QUEUE) | where it was taken from |
//! | [`dead-letter-first-failure`](DEAD_LETTER_FIRST_FAILURE) | when a handler first failed with it, as far as this process knows, else when it was rejected: a timestamp |
//!
//! # How many copies
//! **Never none:** a message is acked after a copy of it was confirmed, and never before.
//!
//! **At most one too many.** Where it is certain that a try stored nothing, another try does no harm: the publisher was
//! not ready, or its error [says so](tower_mq_delivery::NotStored), as when the queue is missing or full. Any other error, a
//! time-out or a panic leaves it open: the broker may have stored the copy and only the confirmation was lost. After one
//! such try there is another, which may store a second copy; after two there is none, and the message is released. So of
//! one delivery there are two copies at most: see [`duplicates`](DeadLetterLayer::duplicates).
//!
//! A message that is released comes again, and so does one whose ack is lost with the connection it came by. If it is
//! rejected again, it is copied again. Each copy beyond the first thus stands for a fault: a confirmation that did not
//! come, or an ack that did not arrive. All copies of a message have its id, by which a reader of the dead letters can
//! tell them apart from others.
//!
//! # When the copy cannot be stored
//! Each try is [timed](DeadLetterLayer::timeout) and, if it fails, followed by a [pause](DeadLetterLayer::backoff).
//! After so many [`attempts`](DeadLetterLayer::attempts) the message is released: not at once but after a last pause, as
//! it comes again at once. Meanwhile it holds its worker and its place in the window, and keeps the order of its key.
//! A pause ends when the stack drains: the message is released. Nothing more is published when the message's generation
//! has ended: somebody else has it, or will.
//!
//! Every failed try is logged and reported ([`Event::NotDeadLettered`](tower_mq_delivery::Event::NotDeadLettered)), with
//! `given_up` when the message is released. Where a release counts as an attempt, as on quorum queues of RabbitMQ, a
//! limit of deliveries at the broker must be larger than an outage of the dead letters is long.
//!
//! # Order
//! Inside Settle and Partition, outside Retry, Batch, Timeout and the handler. Over a batch layer, it sees each member
//! by itself. A retry outside of it would repeat what is rejected already; a time-out outside of it must be longer than
//! all tries together, or they are cut off.
//!
//! # Cancel safety, Panics, Cost
//! See [`DeadLetter`].

mod attempt;
mod backoff;
mod copy;
mod error;
pub mod future;
mod layer;
mod publish;
mod service;

pub use error::NotConfirmed;
pub use layer::DeadLetterLayer;
pub use service::DeadLetter;
pub use tower_mq_delivery::{
    DEAD_LETTER_ATTEMPTS, DEAD_LETTER_FIRST_FAILURE, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON, DEAD_LETTER_TRIES,
};

#[cfg(test)]
mod tests;
