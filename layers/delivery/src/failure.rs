//! An error that carries its decision.

use std::{error::Error, fmt, time::Duration};

use crate::{BoxError, Outcome};

/// An error of a handler that has already decided what happens to the message.
///
/// It survives boxing and context: tower's Timeout and Retry, `anyhow`, `#[error(transparent)]` and
/// [`SharedError`](crate::SharedError) all forward [`source`](Error::source), where [`Failure::find`] looks for it.
///
/// ```
/// use tower_mq_delivery::{BoxError, Failure, FailureExt, Outcome};
///
/// fn parse(s: &str) -> Result<u32, BoxError> {
///     Ok(s.parse::<u32>().or_reject()?)
/// }
///
/// let error = parse("seven").unwrap_err();
/// assert!(matches!(Failure::find(&*error), Some(Outcome::Reject { .. })));
/// ```
#[derive(Debug)]
pub struct Failure(Decision);

// A node of its own: wrappers such as anyhow's box hide the outermost error from `downcast_ref`, but not its source.
#[derive(Debug)]
struct Decision {
    outcome: Outcome,
    cause: BoxError,
}

impl Failure {
    /// The message can never be handled; the error's text is the reason.
    pub fn reject(error: impl Into<BoxError>) -> Self {
        let cause = error.into();
        Self::with(Outcome::reject(cause.to_string()), cause)
    }

    /// The message is to come again, not before `after` has passed.
    pub fn retry_after(error: impl Into<BoxError>, after: Duration) -> Self {
        Self::with(Outcome::Retry { after }, error)
    }

    /// The message goes back as if nobody had tried: a dependency is down, and the message is not to blame.
    pub fn release(error: impl Into<BoxError>) -> Self {
        Self::with(Outcome::Release, error)
    }

    /// Any outcome with any error.
    pub fn with(outcome: Outcome, error: impl Into<BoxError>) -> Self {
        Self(Decision { outcome, cause: error.into() })
    }

    /// The outcome that this failure decided.
    pub fn outcome(&self) -> &Outcome {
        &self.0.outcome
    }

    /// Looks for a decision in `error` and in all its sources.
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Outcome> {
        std::iter::successors(Some(error), |e| (**e).source()).find_map(|e| {
            let failure = e.downcast_ref::<Self>().map(Self::outcome);
            failure.or_else(|| e.downcast_ref::<Decision>().map(|d| &d.outcome))
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.cause, f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decided: {}", self.outcome.name())
    }
}

impl Error for Decision {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// Decides on the spot: `order.parse().or_reject()?`.
pub trait FailureExt<T> {
    /// An error here means that the message can never be handled.
    fn or_reject(self) -> Result<T, Failure>;
    /// An error here means that the message is to come again, not before `after` has passed.
    fn or_retry_after(self, after: Duration) -> Result<T, Failure>;
    /// An error here is not the message's fault: it goes back as if nobody had tried.
    fn or_release(self) -> Result<T, Failure>;
}

impl<T, E: Into<BoxError>> FailureExt<T> for Result<T, E> {
    fn or_reject(self) -> Result<T, Failure> {
        self.map_err(Failure::reject)
    }

    fn or_retry_after(self, after: Duration) -> Result<T, Failure> {
        self.map_err(|e| Failure::retry_after(e, after))
    }

    fn or_release(self) -> Result<T, Failure> {
        self.map_err(Failure::release)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::SharedError;

    fn rejects(error: &(dyn Error + 'static)) -> bool {
        matches!(Failure::find(error), Some(Outcome::Reject { reason }) if reason == "no such order")
    }

    #[derive(Debug, thiserror::Error)]
    enum Wrapped {
        #[error(transparent)]
        Transparent(#[from] Failure),
    }

    #[test]
    fn a_decision_survives_every_wrapper() {
        let failure = || Failure::reject("no such order");
        assert!(rejects(&failure()));
        assert!(rejects(&*BoxError::from(failure())));
        assert!(rejects(&Wrapped::from(failure())));
        assert!(rejects(&SharedError::from(BoxError::from(failure()))));
        assert!(rejects(&*BoxError::from(anyhow::Error::from(failure()))));
        assert!(rejects(&*BoxError::from(anyhow::Error::from(failure()).context("while paying"))));
    }

    #[test]
    fn an_error_without_a_decision_has_none() {
        assert!(Failure::find(&io::Error::other("disk")).is_none());
    }
}
