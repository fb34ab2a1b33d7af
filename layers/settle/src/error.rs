//! A decision that did not reach the broker.

use tower_mq_delivery::{Outcome, SettleError};

/// A decision that did not reach the broker: the only error of [`Settler`](crate::Settler), in a
/// [`BoxError`](tower_mq_delivery::BoxError), beside those of the inner service's readiness.
///
/// Nothing is lost: the message comes again.
#[derive(Debug, thiserror::Error)]
#[error("could not tell the broker of `{destination}` to {} a message, which will come again: {source}", .outcome.name())]
#[non_exhaustive]
pub struct Unsettled {
    /// The queue or topic of the message.
    pub destination: Box<str>,
    /// What was decided.
    pub outcome: Outcome,
    /// Why the broker does not know.
    pub source: SettleError,
}
