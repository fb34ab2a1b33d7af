//! The response of [`Trace`](crate::Trace) and [`Publisher`](crate::Publisher).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::{pin_project, pinned_drop};
use tracing::Span;

use crate::ending::Ending;

/// The response of [`Trace`](crate::Trace) and [`Publisher`](crate::Publisher): that of the inner service, polled in its
/// span. After it was ready it is never ready again.
///
/// # Cancel safety
/// Dropped before it is ready, it drops the inner future in the span, and closes it.
#[pin_project(PinnedDrop)]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<F> {
    #[pin]
    inner: Option<F>,
    span: Option<Ending>,
}

impl<F> ResponseFuture<F> {
    #[inline(always)]
    pub(crate) fn new(span: Span, call: impl FnOnce() -> F) -> Self {
        // Ends also if the call panics.
        let span = Ending::of(span);
        let inner = match &span {
            None => call(),
            Some(span) => span.span().in_scope(call),
        };
        Self { inner: Some(inner), span }
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    T: 'static,
    E: 'static,
{
    type Output = Result<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Pending };
        // Ends here if this panics, whoever keeps the future then.
        let Some(span) = this.span.take() else {
            let result = ready!(inner.poll(cx));
            this.inner.set(None);
            return Poll::Ready(result);
        };
        let entered = span.span().enter();
        let Poll::Ready(result) = inner.poll(cx) else {
            drop(entered);
            *this.span = Some(span);
            return Poll::Pending;
        };
        // What the handler holds belongs to its span, up to the end.
        this.inner.set(None);
        drop(entered);
        // Closed now: who keeps the future does not keep the span.
        span.end(&result);
        Poll::Ready(result)
    }
}

#[pinned_drop]
impl<F> PinnedDrop for ResponseFuture<F> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        if let Some(span) = this.span {
            let _entered = span.span().enter();
            this.inner.set(None);
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("span", &self.span.as_ref().map(Ending::span))
            .finish_non_exhaustive()
    }
}
