//! The response.

use std::{
    fmt,
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tower_mq_delivery::{BoxError, CarryOne};
use tower_service::Service;

use crate::{slots::Caller, ticket::Ticket};

/// The answer to a delivery that is in a lane.
///
/// # Cancel safety
/// Dropping it cancels the delivery: one that is queued is never handled, one that is being handled is dropped at the
/// next poll of its lane.
///
/// # Panics
/// A panic of the inner service goes on here. It panics, too, if it is polled after it was ready.
#[must_use = "a delivery whose response is dropped is cancelled"]
pub struct ResponseFuture<S, R>
where
    S: Service<R>,
{
    kind: Kind<S, R>,
}

enum Kind<S, R>
where
    S: Service<R>,
{
    Task(Caller<S::Response>),
    Inline(Ticket<S, R>),
}

impl<S, R> ResponseFuture<S, R>
where
    S: Service<R>,
{
    #[inline]
    pub(crate) fn task(caller: Caller<S::Response>) -> Self {
        Self { kind: Kind::Task(caller) }
    }

    #[inline]
    pub(crate) fn inline(ticket: Ticket<S, R>) -> Self {
        Self { kind: Kind::Inline(ticket) }
    }
}

// Nothing in it is pinned: what runs inline is in a box of its own.
impl<S, R> Unpin for ResponseFuture<S, R> where S: Service<R> {}

impl<S, R> Future for ResponseFuture<S, R>
where
    S: Service<R> + Clone,
    S::Error: Into<BoxError>,
    R: CarryOne,
{
    type Output = Result<S::Response, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.kind {
            Kind::Task(caller) => match ready!(caller.poll(cx)) {
                Ok(answer) => Poll::Ready(answer),
                Err(panic) => resume_unwind(panic),
            },
            Kind::Inline(ticket) => ticket.poll(cx),
        }
    }
}

impl<S, R> fmt::Debug for ResponseFuture<S, R>
where
    S: Service<R>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
