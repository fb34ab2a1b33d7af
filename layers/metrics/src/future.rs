//! The response of [`Metrics`](crate::Metrics).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_mq_delivery::Decided;

use crate::measured::Measured;

/// The response of [`Metrics`](crate::Metrics): that of the inner service.
///
/// # Cancel safety
/// As that of the inner service. What is dropped is counted.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<F> {
    // Before the watch, so dropped before it: what the window shows as free has been given back.
    #[pin]
    inner: F,
    watch: Watch,
}

impl<F> ResponseFuture<F> {
    pub(crate) fn new(inner: F, watch: Watch) -> Self {
        Self { inner, watch }
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    T: Decided,
    E: 'static,
{
    type Output = Result<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx));
        if let Some(measured) = this.watch.0.take() {
            measured.end(&answer);
        }
        Poll::Ready(answer)
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

/// What is measured, until it ends or is dropped.
pub(crate) struct Watch(pub(crate) Option<Measured>);

impl Drop for Watch {
    #[inline]
    fn drop(&mut self) {
        if let Some(measured) = self.0.take() {
            measured.dropped();
        }
    }
}
