//! Whether a layer keeps Tower's contract, and ours: [`check`].
//!
//! A layer that breaks it works in most tests and hangs, leaks or runs too much in production. The check puts a strict
//! service under the layer and plays what happens to services in a stack: readiness that is late, clones, futures that
//! are dropped at every stage, errors, panics, messages that are stale or lack what most have, a stack that drains. It
//! looks for
//!
//! - calls of the inner service without readiness, and clones that carry readiness along,
//! - calls that are made twice, with an empty batch, or not at all,
//! - reservations that leak, that are kept though nobody needs them, or that are kept without a word
//!   ([`Turn::decline`](tower_mq_delivery::Turn::decline)) when a layer answers by itself,
//! - wake-ups that are lost: every future here is polled only when it was woken,
//! - turns that are passed though nothing bounds what waits, and batches that mix the owners of turns,
//! - decisions that are changed: an ack or a release that becomes something else, an error that becomes an ack,
//! - deliveries that are neither settled nor given back, messages that are kept when their call has ended,
//! - tasks that `layer` starts, or that outlive the service,
//! - a service that does not go on after an error, a panic or a cancelled call, that hides that the inner service has
//!   failed for good, or that sleeps on while the stack drains.
//!
//! | what stands outside | what may stand inside |
//! |---|---|
//! | `Delivery` | a delivery, or a message: lanes, settle, metrics, traces, a breaker |
//! | `Message` | a message, or a batch: batches, retries, dead letters, deduplication |
//! | `Publication` | a publication: layers around a publisher |
//!
//! ```
//! use tower::limit::ConcurrencyLimitLayer;
//! use tower_mq_delivery::Message;
//! use tower_mq_testing::contract;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! contract::check::<Message, _>(ConcurrencyLimitLayer::new(2)).await;
//! # }
//! ```

mod case;
mod cases;
mod driver;
mod inner;
mod mark;
mod plan;
mod request;
mod strict;

use tower_layer::Layer;
use tower_mq_delivery::BoxError;
use tower_service::Service;

pub use inner::{Answering, Inner};
pub use request::{Answer, Request};

/// Panics if the layer breaks the contract; the message tells what it did wrong, and in which case.
///
/// `R` is what stands outside the layer: a [`Delivery`](tower_mq_delivery::Delivery), a
/// [`Message`](tower_mq_delivery::Message) or a [`Publication`](tower_mq_delivery::Publication). What stands inside
/// follows from the layer: a batch, for one that gathers messages.
///
/// Run it with a paused clock (`#[tokio::test(start_paused = true)]`): a wake-up that does not come is then seen at
/// once. Give a layer with a limit a small one, so that the check reaches it; it tries up to 2,000 calls.
///
/// # Panics
/// If the layer breaks the contract.
pub async fn check<R, L>(layer: L)
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Response: 'static,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    if let Err(fault) = find_fault::<R, L>(layer).await {
        panic!("{fault}");
    }
}

/// [`check`] for those who want to look at the fault.
///
/// # Errors
/// The first fault that is found.
pub async fn find_fault<R, L>(layer: L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Response: 'static,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    cases::all::<R, L>(&layer).await
}

/// What a layer did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the layer breaks the contract: {what} (while {case})")]
#[non_exhaustive]
pub struct Fault {
    /// What was going on.
    pub case: &'static str,
    /// What was wrong.
    pub what: &'static str,
}
