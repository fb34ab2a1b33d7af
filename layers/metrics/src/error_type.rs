//! What kind of error it was, out of a closed list.

use std::{any::Any, error::Error, io};

use tower_mq_delivery::{BoxError, Decided, DynError, Failure, Outcome, Panicked};

use crate::convention::OTHER;

/// A user's own names for errors. `None`: the error has none.
pub(crate) type Name = fn(&DynError) -> Option<&'static str>;

/// The values of `error.type` that are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorType {
    Panic,
    Timeout,
    Cancelled,
    Release,
    Retry,
    Reject,
    Other,
}

impl ErrorType {
    pub(crate) const ALL: usize = 7;

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Release => "release",
            Self::Retry => "retry",
            Self::Reject => "reject",
            Self::Other => OTHER,
        }
    }

    fn of(error: &DynError) -> Self {
        let mut chain =
            std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (**error).source());
        chain.find_map(Self::of_one).unwrap_or_else(|| match Failure::find(error) {
            Some(outcome) => Self::of_outcome(outcome).unwrap_or(Self::Other),
            None => Self::Other,
        })
    }

    fn of_one(error: &(dyn Error + 'static)) -> Option<Self> {
        let timed_out = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        if error.is::<Panicked>() {
            Some(Self::Panic)
        } else if error.is::<tokio::time::error::Elapsed>()
            || error.downcast_ref::<io::Error>().is_some_and(timed_out)
        {
            Some(Self::Timeout)
        } else {
            None
        }
    }

    fn of_outcome(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Ack => None,
            Outcome::Release => Some(Self::Release),
            Outcome::Retry { .. } => Some(Self::Retry),
            Outcome::Reject { .. } => Some(Self::Reject),
            _ => Some(Self::Other),
        }
    }
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Failed(ErrorType),
    /// With an error that the user has named.
    Named(&'static str),
}

impl Verdict {
    pub(crate) fn of<T: Decided, E: 'static>(answer: &Result<T, E>, name: Option<Name>) -> Self {
        match answer {
            Ok(answer) => match (answer.error(), answer.decided()) {
                (Some(error), _) => Self::of_error(error, name),
                (None, Some(outcome)) => ErrorType::of_outcome(outcome).map_or(Self::Good, Self::Failed),
                (None, None) => Self::Good,
            },
            Err(error) => Self::of_any(error, name),
        }
    }

    /// An error of any type: a boxed one, as layers of ours have it, or one that is known by itself.
    #[cold]
    fn of_any(error: &dyn Any, name: Option<Name>) -> Self {
        if let Some(error) = error.downcast_ref::<BoxError>() {
            Self::of_error(&**error, name)
        } else if let Some(error) = error.downcast_ref::<Failure>() {
            Self::of_error(error, name)
        } else if let Some(error) = error.downcast_ref::<io::Error>() {
            Self::of_error(error, name)
        } else {
            Self::Failed(ErrorType::Other)
        }
    }

    #[cold]
    fn of_error(error: &DynError, name: Option<Name>) -> Self {
        match name.and_then(|name| name(error)) {
            Some(name) => Self::Named(name),
            None => Self::Failed(ErrorType::of(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower_mq_delivery::{Outcomes, SharedError};

    use super::*;

    fn of(error: impl Into<BoxError>) -> &'static str {
        match Verdict::of(&Err::<(), BoxError>(error.into()), None) {
            Verdict::Failed(of) => of.name(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_cause_is_named_before_the_decision_and_through_wrappers() {
        let elapsed = || async {
            tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>())
                .await
                .expect_err("elapsed")
        };
        assert_eq!(of(elapsed().await), "timeout");
        assert_eq!(of(Failure::release(elapsed().await)), "timeout");
        assert_eq!(of(io::Error::from(io::ErrorKind::TimedOut)), "timeout");
        assert_eq!(of(Panicked::new(&(Box::new("a key") as _))), "panic");
        assert_eq!(of(SharedError::from(BoxError::from(Failure::reject("a key")))), "reject");
        assert_eq!(of(Failure::retry_after("a key", Duration::ZERO)), "retry");
        assert_eq!(of(Failure::release("a key")), "release");
        assert_eq!(of("a key"), "_OTHER");
    }

    #[test]
    fn an_outcome_that_is_no_success_is_named_too() {
        let of = |outcome| Verdict::of(&Ok::<_, BoxError>(outcome), None);
        assert_eq!(of(Outcome::Ack), Verdict::Good);
        assert_eq!(of(Outcome::reject("a key")), Verdict::Failed(ErrorType::Reject));
        assert_eq!(of(Outcome::Release), Verdict::Failed(ErrorType::Release));
    }

    #[test]
    fn a_batch_is_named_by_its_first_failure() {
        let answer =
            Outcomes::Each(vec![Ok(Outcome::Ack), Err(Failure::reject("no").into()), Err("no".into())]);
        assert_eq!(Verdict::of(&Ok::<_, BoxError>(answer), None), Verdict::Failed(ErrorType::Reject));
    }

    #[test]
    fn errors_that_are_not_boxed_are_known_or_other() {
        #[derive(Debug)]
        struct Own;
        let failure = Err::<(), _>(Failure::reject("no"));
        assert_eq!(Verdict::of(&failure, None), Verdict::Failed(ErrorType::Reject));
        assert_eq!(Verdict::of(&Err::<(), _>(Own), None), Verdict::Failed(ErrorType::Other));
    }
}
