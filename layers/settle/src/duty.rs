//! The duty to settle one delivery, step by step.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tower_mq_delivery::{
    Acker, BoxError, DynError, Event, Message, Outcome, Panic, Panicked, SettleError, Settled, Settlement,
    Settling,
};

use crate::Unsettled;

/// How far the duty to settle has come. Each step is taken once: the acker is given away by value.
pub(crate) enum Duty {
    /// Nothing is decided. Dropped like this, the delivery is released.
    Due(Acker),
    /// The source has the decision.
    Posted(Outcome, Settling),
    /// The response was given.
    Over,
}

impl Duty {
    /// Tells the source, unless it was told before.
    pub(crate) fn post(self, outcome: Outcome) -> Self {
        match self {
            Self::Due(acker) => {
                let settling = acker.settle(outcome.clone());
                Self::Posted(outcome, settling)
            }
            told => told,
        }
    }

    /// The inner service has ended, and the broker is not waited for. `None`: the response was given.
    #[inline]
    pub(crate) fn end(
        &mut self,
        message: &Message,
        answer: Result<Outcome, BoxError>,
    ) -> Option<Result<Settled, BoxError>> {
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(error) => return std::mem::replace(self, Self::Over).fail(message, &*error).take(message),
        };
        match std::mem::replace(self, Self::Over) {
            // What becomes of nearly every delivery.
            Self::Due(acker) => {
                // A constant needs no clone.
                let (told, outcome) = match outcome {
                    Outcome::Ack => (Outcome::Ack, Outcome::Ack),
                    outcome => (outcome.clone(), outcome),
                };
                Some(response(message, outcome, acker.settle(told)))
            }
            mut told => told.take(message),
        }
    }

    /// The inner service has ended.
    pub(crate) fn answer(self, message: &Message, answer: Result<Outcome, BoxError>) -> Self {
        match answer {
            Ok(outcome) => self.post(outcome),
            Err(error) => self.fail(message, &*error),
        }
    }

    // The payload is not logged. What the text of an error says is its author's choice.
    #[cold]
    fn fail(self, message: &Message, error: &DynError) -> Self {
        let (destination, attempt) = (message.destination(), message.attempt());
        if !matches!(self, Self::Due(_)) {
            tracing::warn!(%destination, attempt, %error, "a message that was acked before could not be handled");
            return self;
        }
        let outcome = message.judge(error, None);
        match outcome {
            Outcome::Retry { .. } | Outcome::Release => {
                tracing::debug!(%destination, attempt, outcome = outcome.name(), %error, "a message was not handled and comes again");
            }
            _ => {
                tracing::warn!(%destination, attempt, outcome = outcome.name(), %error, "a message was not handled and does not come again");
            }
        }
        self.post(outcome)
    }

    /// The message must not be handled: the broker gives it to somebody else.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Posted(_, settling) => {
                !matches!(settling.now(), Ok(Settlement::HandedOver | Settlement::Confirmed))
            }
            _ => false,
        }
    }

    /// Waits for the broker, if it was told.
    pub(crate) fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Posted(_, settling) = self {
            let report = ready!(Pin::new(&mut *settling).poll(cx));
            *settling = Settling::done(report);
        }
        Poll::Ready(())
    }

    /// The response; `None`: it was given.
    pub(crate) fn take(&mut self, message: &Message) -> Option<Result<Settled, BoxError>> {
        let Self::Posted(outcome, settling) = std::mem::replace(self, Self::Over) else { return None };
        Some(response(message, outcome, settling))
    }
}

#[inline]
fn response(message: &Message, outcome: Outcome, settling: Settling) -> Result<Settled, BoxError> {
    match settling.into_now() {
        Ok(settlement) => Ok(Settled::new(outcome, settlement)),
        Err(source) => Err(unsettled(message, outcome, source)),
    }
}

/// The inner service has panicked.
#[cold]
pub(crate) fn panicked(message: &Message, panic: &Panic) -> BoxError {
    let error = Panicked::new(panic);
    tracing::error!(
        destination = %message.destination(),
        attempt = message.attempt(),
        %error,
        "a service panicked while it handled a message"
    );
    message.origin().report(&Event::Panicked { message: Some(message) });
    error.into()
}

#[cold]
fn unsettled(message: &Message, outcome: Outcome, source: SettleError) -> BoxError {
    let destination = message.destination().into();
    Unsettled { destination, outcome, source }.into()
}

impl fmt::Debug for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Due(_) => f.write_str("Due"),
            Self::Posted(outcome, _) => f.debug_tuple("Posted").field(outcome).finish(),
            Self::Over => f.write_str("Over"),
        }
    }
}
