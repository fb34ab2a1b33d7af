//! Tries again what failed, in the message's place or through its broker.
//!
//! Most failures pass: a database that restarts, a lock that is taken, a connection that was cut. [`RetryLayer`] gives
//! the message to its handler once more, after a rest that grows and is drawn by lot ([`Backoff`]).
//!
//! | | a message rests | the order of its key | meanwhile its worker | for rests of |
//! |---|---|---|---|---|
//! | [`in_place`](RetryLayer::in_place) | in its place | is kept | waits | milliseconds to a second |
//! | [`park`](RetryLayer::park) | in its place | is kept | serves other keys | seconds to a minute |
//! | [`requeue`](RetryLayer::requeue) | at its broker | **is given up** | goes on | anything |
//!
//! ```
//! use std::{io, time::Duration};
//!
//! use tower::{ServiceBuilder, ServiceExt, timeout::TimeoutLayer};
//! use tower_mq_delivery::{BoxError, Delivery, Message, Outcome};
//! use tower_mq_retry::{Backoff, RetryLayer};
//! use tower_mq_settle::SettleLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));
//! let stack = ServiceBuilder::new()
//!     .layer(SettleLayer::new())
//!     .layer(RetryLayer::in_place(backoff).attempts(3))
//!     .layer(TimeoutLayer::new(Duration::from_secs(5))) // each try has 5 s
//!     .service_fn(|message: Message| async move {
//!         match message.tries() {
//!             1 => Err(io::Error::other("the database restarts")),
//!             _ => Ok(()),
//!         }
//!     });
//!
//! let settled = stack.oneshot(Delivery::detached(Message::new("two teas"))).await?;
//! assert_eq!(settled.outcome, Outcome::Ack);
//! # Ok(())
//! # }
//! ```
//!
//! # What is tried again
//! Whatever ended in an error, unless the error has decided by itself: a [`Failure`](tower_mq_delivery::Failure), or an
//! input that cannot be decoded, goes out at once. An outcome is a decision, too, also if it is
//! [`Outcome::Retry`](tower_mq_delivery::Outcome::Retry). [`retry_if`](RetryLayer::retry_if) narrows it further.
//!
//! After the last try its error goes out unchanged, and a dead-letter layer or Settle judges it by the policy. All tries
//! in place are one attempt: they do not raise [`Message::attempt`](tower_mq_delivery::Message::attempt), but
//! [`Message::tries`](tower_mq_delivery::Message::tries).
//!
//! Of a batch only the members that failed are tried again, together, before the lane's next batch; what was decided
//! about the others stands.
//!
//! # Order
//! The table above says what each mode keeps.
//!
//! - Put it inside of Settle, where messages can be cloned and errors seen, and inside of a dead-letter layer, which is
//!   for what retries do not cure.
//! - Put it inside of Partition. Outside, a retry goes to the end of its lane, and the order of its key is lost.
//! - Put it inside of a batch layer, where the tries of a batch stay together. Outside, each member rests by itself and
//!   joins a later batch.
//! - Put it outside of a timeout and of limits. Outside, each try has the whole time, and holds a place only while it
//!   runs; inside, the rests count.
//!
//! # Drain and lost connections
//! Nobody waits for a message that rests: when the stack is about to end, whether it finishes or releases what it has
//! taken, the message is released at once, and comes again. It is released, too, when its connection is lost: Settle
//! finds it stale then, and nobody handles it further. The same goes for one that waits for the inner service to be ready
//! for another try.
//!
//! # Cancel safety
//! A response future that is dropped drops the try that runs or ends the rest.
//!
//! # Panics
//! See [`Retry`].
//!
//! # Cost
//! Of a message that succeeds: a clone of it, and no allocation. Of one that fails: a box for what is known of its
//! tries, one for each rest, and a clone of the inner service.

mod backoff;
pub mod future;
mod layer;
mod pause;
mod service;
mod tries;

pub use backoff::Backoff;
pub use layer::RetryLayer;
pub use service::Retry;
/// Budgets for retries: those of tower.
pub use tower::retry::budget;

#[cfg(test)]
mod tests;
