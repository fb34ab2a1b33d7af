//! Async functions as message handlers.
//!
//! [`handler`] turns an `async fn` with up to eight typed arguments into a service. Each argument is an extractor,
//! which is taken out of the message before the function is called:
//!
//! | argument | what it is |
//! |---|---|
//! | `Json<T>` | the payload, decoded (feature `json`) |
//! | [`Bytes`](bytes::Bytes), [`String`] | the payload |
//! | [`Key`] | the partition key, if there is one |
//! | [`Headers`](tower_mq_delivery::Headers) | all headers, with their native types |
//! | [`Attempt`] | which attempt this is, if somebody counts |
//! | [`Destination`] | the queue or topic |
//! | [`Message`](tower_mq_delivery::Message) | everything |
//! | `Option<T>` | `None` where what `T` needs is absent; something malformed is still rejected |
//! | `Result<T, Rejection>` | any of these, for those who look at the rejection themselves |
//! | [`Batch<T>`](tower_mq_delivery::Batch), alone | many of one of these, inside a batch layer |
//!
//! Anything else: capture it in a closure, or implement [`FromMessage`].
//!
//! ```
//! use tower::ServiceExt;
//! use tower_mq_delivery::{BoxError, FailureExt, Message, Outcome};
//! use tower_mq_handler::{Attempt, Key, handler};
//!
//! async fn add(Key(account): Key, Attempt(_): Attempt, amount: String) -> Result<(), BoxError> {
//!     let amount: u64 = amount.parse().or_reject()?;
//!     println!("{account:?} gets {amount}");
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let message = Message::builder("12").key("account-7").build();
//! assert_eq!(handler(add).oneshot(message).await?, Outcome::Ack);
//! # Ok(())
//! # }
//! ```
//!
//! # Endings
//! A handler returns `()`, an [`Outcome`](tower_mq_delivery::Outcome), or a `Result` of these with any error. What an
//! error means is for Settle to say, unless it carries its decision ([`Failure`](tower_mq_delivery::Failure)).
//! A message that an extractor cannot be taken out of is rejected: it will not get better ([`Rejection`]). A panic is
//! an error like others ([`Panicked`](tower_mq_delivery::Panicked)), so Retry and a dead-letter layer see it.
//!
//! # Order
//! Innermost, inside Settle.

mod arguments;
mod extract;
mod function;
pub mod future;
#[cfg(feature = "json")]
mod json;
mod rejection;
mod service;

pub use arguments::{Arguments, Extracted};
pub use extract::{Attempt, Destination, FromMessage, Key};
pub use function::HandlerFn;
#[cfg(feature = "json")]
pub use json::Json;
pub use rejection::Rejection;
pub use service::{Handler, handler};

#[cfg(test)]
mod tests;
