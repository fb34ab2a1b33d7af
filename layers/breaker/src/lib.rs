//! Pauses a message queue while too many of its messages fail.
//!
//! When the database behind a handler is down, every message fails. Taking the next one helps nobody: it uses up its
//! attempts and ends among the dead letters, and the database is asked once more. [`BreakerLayer`] looks at what
//! becomes of the deliveries. When too large a share of them fails, it is not ready any more, so that nothing is taken;
//! after a pause it lets one delivery through, and goes on when that one succeeds.
//!
//! | the circuit is | ready | until |
//! |---|---|---|
//! | closed | yes | the share of failures among the last deliveries reaches the [threshold](BreakerLayer::threshold) |
//! | open | no | the [pause](BreakerLayer::pause) is over |
//! | half open | for one delivery | it succeeds: closed; it fails: open, for a longer pause |
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_mq_breaker::BreakerLayer;
//! use tower_mq_delivery::{BoxError, Delivery, Message};
//! use tower_mq_settle::SettleLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let mut stack = ServiceBuilder::new()
//!     .layer(BreakerLayer::new().minimum(2).pause(Duration::from_secs(1), Duration::from_secs(60)))
//!     .layer(SettleLayer::new())
//!     .service_fn(|_: Message| async { Err::<(), BoxError>("the database is down".into()) });
//!
//! for _ in 0..2 {
//!     stack.ready().await?;
//!     tower::Service::call(&mut stack, Delivery::detached(Message::new("two teas"))).await?;
//! }
//! let paused = tokio::time::Instant::now();
//! stack.ready().await?; // to probe
//! assert!(paused.elapsed() >= Duration::from_millis(500));
//! # Ok(())
//! # }
//! ```
//!
//! # What fails
//! A delivery that is settled with [`Retry`](tower_mq_delivery::Outcome::Retry) or
//! [`Reject`](tower_mq_delivery::Outcome::Reject), or whose service fails or panics. An ack is a success. A release, and
//! a response that is dropped, count for nothing: the message was not worked on to the end.
//! [`failure_if`](BreakerLayer::failure_if) says it otherwise. Where a dead-letter layer stands inside, a message whose
//! copy is stored is acked, and so a success here.
//!
//! Deliveries that were let through before the circuit opened run to their end, and say nothing of what comes after.
//!
//! # Pausing, not shedding
//! Load shedding, as a server does it, is not for queues. A server that sheds a request is rid of it; a message that is
//! turned away is still in the queue, comes back at once, and has used up an attempt. So nothing is turned away here:
//! the next delivery is in the driver's hand, the others stay with their source, and their locks are renewed.
//!
//! # Order
//! Kept: nothing overtakes.
//!
//! - Put it outside of Settle, where it sees what was decided, and what retries have made good is no failure.
//! - Put it outside of Partition, where one breaker speaks for all lanes. What the lanes have queued already is handled
//!   all the same: a small [window](tower_mq_delivery::Origin::window) of the source keeps that short. Inside, each lane
//!   waits with a delivery in its hand, and one probe at a time goes through all of them.
//! - Put a timeout inside: a probe that never ends keeps the queue paused until the stack drains.
//! - Each service that the layer makes has a breaker of its own; the clones of a service share it.
//!
//! # Shutdown
//! A stack that is about to end does not wait for the pause. The delivery in the driver's hand is let through at once:
//! Settle gives it back if the stack releases what has not started, and else it is handled, as all that was taken.
//!
//! # Cancel safety, Panics, Cost
//! See [`Breaker`].

mod circuit;
pub mod future;
mod layer;
mod service;
mod sync;
mod window;

pub use layer::BreakerLayer;
pub use service::Breaker;
pub use window::Window;

#[cfg(all(test, not(tower_mq_loom)))]
mod tests;
