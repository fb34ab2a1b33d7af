//! The response of [`Handler`](crate::Handler).

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use pin_project::pin_project;
use tower_mq_delivery::{BoxError, Event, Holes, IntoAnswer, Outcome, Panic, Panicked, Work};

use crate::Rejection;

/// The response of a [`Handler`](crate::Handler). After its end it is never ready again.
///
/// # Cancel safety
/// Dropping it drops the function's future.
#[pin_project]
#[must_use = "a handler does nothing unless polled"]
pub struct ResponseFuture<F, W> {
    #[pin]
    running: Option<F>,
    /// Known without running the function.
    known: Option<Result<Outcome, BoxError>>,
    work: W,
    /// Members of a batch that could not be decoded.
    holes: Holes,
}

impl<F, W: Work> ResponseFuture<F, W> {
    pub(crate) fn called(work: W, running: Option<F>, holes: Holes) -> Self {
        // Nothing could be decoded: the holes will cover this answer.
        let known = running.is_none().then_some(Ok(Outcome::Ack));
        Self { running, known, work, holes }
    }

    pub(crate) fn rejected(work: W, rejection: Rejection) -> Self {
        Self { running: None, known: Some(Err(rejection.into())), work, holes: Holes::new() }
    }

    pub(crate) fn panicked(work: W, panic: &Panic) -> Self {
        let error = report(&work, panic);
        Self { running: None, known: Some(Err(error)), work, holes: Holes::new() }
    }
}

impl<F, W> Future for ResponseFuture<F, W>
where
    F: Future<Output: IntoAnswer<W>>,
    W: Work,
{
    type Output = Result<W::Answer, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answer = if let Some(running) = this.running.as_mut().as_pin_mut() {
            let polled = catch_unwind(AssertUnwindSafe(|| running.poll(cx).map(IntoAnswer::into_answer)));
            let answer = match polled {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(answer)) => answer,
                Err(panic) => Err(report(this.work, &panic)),
            };
            this.running.set(None);
            answer
        } else if let Some(known) = this.known.take() {
            known.map(Into::into)
        } else {
            return Poll::Pending;
        };
        Poll::Ready(W::fill(answer, this.work.messages().len(), std::mem::take(this.holes)))
    }
}

/// The panic as an error, after everybody has heard of it.
#[cold]
fn report<W: Work>(work: &W, panic: &Panic) -> BoxError {
    let error = Panicked::new(panic);
    if let [first, others @ ..] = work.messages() {
        tracing::error!(destination = %first.destination(), attempt = first.attempt(), %error, "a handler panicked");
        // In a batch nobody knows which of them it was.
        let message = others.is_empty().then_some(first);
        first.origin().report(&Event::Panicked { message });
    }
    error.into()
}

impl<F, W: fmt::Debug> fmt::Debug for ResponseFuture<F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("work", &self.work)
            .field("running", &self.running.is_some())
            .finish_non_exhaustive()
    }
}
