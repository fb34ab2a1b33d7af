//! Settles each delivery exactly once, whatever becomes of its handler.
//!
//! [`SettleLayer`] splits a [`Delivery`](tower_mq_delivery::Delivery) into its message and the duty to settle it.
//! Inside it flows a [`Message`](tower_mq_delivery::Message), which is `Clone`, so that tower's own Retry, Timeout and
//! the rest work as they are.
//!
//! | what becomes of the handler | what the broker is told |
//! |---|---|
//! | it returns `()`, `Ok(())` | ack |
//! | it returns an [`Outcome`](tower_mq_delivery::Outcome) | that outcome |
//! | it fails with a [`Failure`](tower_mq_delivery::Failure), however wrapped | what the failure decided |
//! | it fails otherwise, or panics | what the [`ErrorPolicy`](tower_mq_delivery::ErrorPolicy) says |
//! | its future is dropped | release |
//! | its message is stale, or the stack releases what has not started | release, and it is not called |
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::{ServiceBuilder, ServiceExt, timeout::TimeoutLayer};
//! use tower_mq_delivery::{BoxError, Delivery, ErrorPolicy, Message, Outcome};
//! use tower_mq_settle::SettleLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let stack = ServiceBuilder::new()
//!     .layer(SettleLayer::new().on_error(ErrorPolicy::retry(3)))
//!     .layer(TimeoutLayer::new(Duration::from_secs(5)))
//!     .service_fn(|message: Message| async move {
//!         match &message.payload()[..] {
//!             b"slow" => std::future::pending().await,
//!             _ => Ok::<_, BoxError>(()),
//!         }
//!     });
//!
//! let settled = stack.clone().oneshot(Delivery::detached(Message::new("quick"))).await?;
//! assert_eq!(settled.outcome, Outcome::Ack);
//! let settled = stack.oneshot(Delivery::detached(Message::new("slow"))).await?;
//! assert_eq!(settled.outcome, Outcome::Retry { after: Duration::from_secs(1) });
//! # Ok(())
//! # }
//! ```
//!
//! [`CatchPanicLayer`], next to a service that is no `handler(f)`, makes its panics errors that retry and dead-letter
//! layers see.
//!
//! # Order
//! Inside Partition, so that a lane goes on when its delivery is settled. Outside Dedup, Retry, Batch, Timeout and the
//! handler: what stands outside of Settle sees no error of the handler, only [`Settled`](tower_mq_delivery::Settled).

pub mod catch;
mod duty;
mod error;
pub mod future;
mod layer;
mod service;

pub use catch::{CatchPanic, CatchPanicLayer};
pub use error::Unsettled;
pub use layer::SettleLayer;
pub use service::Settler;

#[cfg(test)]
mod tests;
