//! What became of a decision.

use std::{
    borrow::Cow,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::{Decided, Outcome};

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The source has it, and will tell the broker.
    HandedOver,
    /// The broker has stored it.
    Confirmed,
    /// The generation had ended: nothing was sent, the message comes again.
    Stale,
    /// The broker's lock had run out: the message comes again, or has.
    LeaseLost,
}

/// Why a decision did not reach the broker.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The broker refused it.
    #[error("the broker refused the settlement: {0}")]
    Refused(Cow<'static, str>),
    /// The source ended before it could tell the broker; the message comes again.
    #[error("the source ended before the broker was told")]
    Ended,
}

/// Reports what becomes of a decision. It needs no polling: the decision was posted when this was made.
///
/// # Cancel safety
/// Dropping it loses nothing.
#[derive(Debug)]
#[must_use = "only reports: drop it if the report does not matter"]
pub struct Settling(Reporting);

#[derive(Debug)]
enum Reporting {
    Done(Result<Settlement, SettleError>),
    Waiting(oneshot::Receiver<Result<Settlement, SettleError>>),
}

impl Settling {
    /// All that will be known is known.
    pub const fn done(result: Result<Settlement, SettleError>) -> Self {
        Self(Reporting::Done(result))
    }

    /// The report will come through the sender. A sender that is dropped reports [`SettleError::Ended`].
    pub fn pending() -> (oneshot::Sender<Result<Settlement, SettleError>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Reporting::Waiting(receiver)))
    }

    /// All that will be known, if it is known already.
    #[inline]
    pub(crate) fn known(&self) -> Option<&Result<Settlement, SettleError>> {
        match &self.0 {
            Reporting::Done(result) => Some(result),
            Reporting::Waiting(_) => None,
        }
    }

    /// What is known now, without waiting: [`Settlement::HandedOver`] while the broker has not answered.
    pub fn now(&self) -> Result<Settlement, SettleError> {
        match &self.0 {
            Reporting::Done(result) => result.clone(),
            Reporting::Waiting(_) => Ok(Settlement::HandedOver),
        }
    }

    /// What is known now, for those who ask nothing more.
    #[inline]
    pub fn into_now(self) -> Result<Settlement, SettleError> {
        match self.0 {
            Reporting::Done(result) => result,
            Reporting::Waiting(_) => Ok(Settlement::HandedOver),
        }
    }
}

impl Future for Settling {
    type Output = Result<Settlement, SettleError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Reporting::Done(result) => Poll::Ready(result.clone()),
            Reporting::Waiting(report) => {
                Pin::new(report).poll(cx).map(|report| report.unwrap_or(Err(SettleError::Ended)))
            }
        }
    }
}

/// The answer of a settle layer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// What was decided.
    pub outcome: Outcome,
    /// What became of the decision.
    pub settlement: Settlement,
}

impl Settled {
    /// This outcome, and what became of it.
    pub const fn new(outcome: Outcome, settlement: Settlement) -> Self {
        Self { outcome, settlement }
    }
}

impl Decided for Settled {
    fn decided(&self) -> Option<&Outcome> {
        Some(&self.outcome)
    }
}
