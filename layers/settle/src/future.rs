//! The response of [`Settler`](crate::Settler).

use std::{
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_mq_delivery::{BoxError, Event, IntoOutcome, Message, Panic, Settled};

use crate::duty::{Duty, panicked};

/// The response of [`Settler`](crate::Settler): ready when the delivery is settled. After that it is never ready
/// again.
///
/// # Cancel safety
/// Dropped before it is ready, it releases the delivery, unless that was settled before.
#[pin_project]
#[must_use = "a delivery goes back to its queue when its future is dropped"]
pub struct ResponseFuture<F> {
    // Before the duty, so dropped before it: the message does not come again while somebody works on it.
    #[pin]
    inner: Option<F>,
    duty: Duty,
    message: Message,
    confirmed: bool,
}

impl<F> ResponseFuture<F> {
    /// Nobody works on the message.
    #[inline]
    pub(crate) fn new(duty: Duty, message: Message, confirmed: bool) -> Self {
        Self { inner: None, duty, message, confirmed }
    }

    /// `inner` works on the message.
    #[inline]
    pub(crate) fn start(&mut self, inner: F) {
        self.inner = Some(inner);
    }

    /// Whoever was to work on the message has panicked.
    #[cold]
    pub(crate) fn fail(&mut self, panic: &Panic) {
        let error = panicked(&self.message, panic);
        self.duty = mem::replace(&mut self.duty, Duty::Over).answer(&self.message, Err(error));
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    T: IntoOutcome,
    E: Into<BoxError>,
{
    type Output = Result<Settled, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if *this.confirmed {
            // Only when it is to be settled before has the duty been done here.
            ready!(this.duty.poll_confirmed(cx));
            if this.inner.is_some() && this.duty.is_lost() {
                this.inner.set(None);
                this.message.origin().report(&Event::NotHandled { message: this.message });
            }
        }
        if let Some(inner) = this.inner.as_mut().as_pin_mut() {
            let answer =
                match catch_unwind(AssertUnwindSafe(|| inner.poll(cx).map(IntoOutcome::into_outcome))) {
                    Ok(Poll::Ready(answer)) => answer,
                    Ok(Poll::Pending) => return Poll::Pending,
                    Err(panic) => Err(panicked(this.message, &panic)),
                };
            // What the handler holds is freed before the broker hears of its end.
            this.inner.set(None);
            if !*this.confirmed {
                return this.duty.end(this.message, answer).map_or(Poll::Pending, Poll::Ready);
            }
            *this.duty = mem::replace(this.duty, Duty::Over).answer(this.message, answer);
            ready!(this.duty.poll_confirmed(cx));
        }
        this.duty.take(this.message).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("message", &self.message)
            .field("duty", &self.duty)
            .finish_non_exhaustive()
    }
}
