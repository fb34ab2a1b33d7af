//! Whether a layer keeps Tower's contract, and ours: [`check`].
//!
//! A layer that breaks it works in most tests and hangs, leaks or runs too much in production. The check puts a strict
//! service under the layer and plays what happens to services in a stack: readiness that is late, clones, futures that
//! are dropped at every stage, errors. It looks for
//!
//! - calls of the inner service without readiness, and clones that carry readiness along,
//! - reservations that leak, or that are kept though nobody needs them,
//! - wake-ups that are lost: every future here is polled only when it was woken,
//! - deliveries that are neither settled nor given back,
//! - a service that does not go on after an error or a cancelled call.
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
mod inner;
mod request;
mod strict;

use tower_layer::Layer;
use tower_mq_delivery::BoxError;
use tower_service::Service;

pub use inner::{Answering, Inner};
pub use request::{Answer, Request};

/// Panics if the layer breaks the contract; the message tells what it did wrong, and in which case.
///
/// `R` is what stands outside the layer: a [`Delivery`](tower_mq_delivery::Delivery) or a
/// [`Message`](tower_mq_delivery::Message). What stands inside follows from the layer.
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
