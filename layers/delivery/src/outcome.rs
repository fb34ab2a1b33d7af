//! What happens to a delivery, and what may be turned into it.

use std::{borrow::Cow, time::Duration};

use crate::{BoxError, DynError};

/// What the broker is told about a delivery.
///
/// What a broker cannot express is emulated by its source, or refused by name; the table is in the docs of each
/// source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done: the broker forgets the message.
    Ack,
    /// Nothing happened: hand it out again, to anyone, without blame. Some brokers count it all the same
    /// ([`Capabilities::release_counts`](crate::Capabilities::release_counts)).
    Release,
    /// The attempt failed: hand it out again, not before `after` has passed.
    ///
    /// # Order
    /// Gives up the order of the key: what was queued behind it runs first.
    Retry {
        /// How long the message rests; zero is "at once".
        after: Duration,
    },
    /// Nobody will ever handle this: dead letters, or what the source was told to do with rejects.
    Reject {
        /// For those who read the dead letters.
        reason: Cow<'static, str>,
    },
}

impl Outcome {
    /// A reject with a reason.
    pub fn reject(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Reject { reason: reason.into() }
    }

    /// `"ack"`, `"release"`, `"retry"` or `"reject"`: for labels and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Release => "release",
            Self::Retry { .. } => "retry",
            Self::Reject { .. } => "reject",
        }
    }
}

/// What a service may answer to a [`Message`](crate::Message).
#[diagnostic::on_unimplemented(
    message = "`{Self}` says nothing about what happens to the message",
    label = "not an outcome",
    note = "return `()`, `Outcome`, `Result<(), E>` or `Result<Outcome, E>` with `E: Into<BoxError>`, or implement `IntoOutcome`"
)]
pub trait IntoOutcome {
    /// The outcome, or the error that a policy will judge.
    fn into_outcome(self) -> Result<Outcome, BoxError>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Outcome, BoxError> {
        Ok(Outcome::Ack)
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, BoxError> {
        Ok(self)
    }
}

impl<T: IntoOutcome, E: Into<BoxError>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Outcome, BoxError> {
        self.map_err(Into::into)?.into_outcome()
    }
}

/// What a finished call shows of its outcome, for layers that only look: metrics, trace, breaker.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not show what was decided about the message",
    label = "shows no outcome",
    note = "put this layer where the response is `()`, `Outcome`, `Outcomes` or `Settled`, or implement `Decided`"
)]
pub trait Decided {
    /// The outcome, if there is one for the whole request.
    fn decided(&self) -> Option<&Outcome>;

    /// The first error in it: a batch may be answered although some of its members failed.
    fn error(&self) -> Option<&DynError> {
        None
    }
}

impl Decided for () {
    fn decided(&self) -> Option<&Outcome> {
        Some(&Outcome::Ack)
    }
}

impl Decided for Outcome {
    fn decided(&self) -> Option<&Outcome> {
        Some(self)
    }
}
