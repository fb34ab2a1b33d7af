//! The response of [`Breaker`](crate::Breaker).

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_mq_delivery::{Decided, Generation};

use crate::{
    circuit::{Circuitry, Pass},
    layer::Verdict,
};

/// The response of [`Breaker`](crate::Breaker): that of the inner service, which is looked at.
///
/// # Cancel safety
/// Dropped, it counts for nothing.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<F> {
    // Before the call, so dropped before it: while somebody works on the probe, no other one is let through.
    #[pin]
    inner: F,
    call: Call,
}

impl<F> ResponseFuture<F> {
    #[inline]
    pub(crate) const fn new(inner: F, call: Call) -> Self {
        Self { inner, call }
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    T: Decided,
{
    type Output = Result<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.call.watch(|| this.inner.poll(cx)));
        let verdict = match &response {
            Ok(answer) => this.call.circuit.settings.verdict(answer.decided()),
            Err(_) => Verdict::Bad,
        };
        this.call.end(verdict);
        Poll::Ready(response)
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("pass", &self.call.pass).finish_non_exhaustive()
    }
}

/// A call under way, and what it is let through by.
pub(crate) struct Call {
    circuit: Arc<Circuitry>,
    /// `None`: its verdict is known.
    pass: Option<Pass>,
    generation: Option<Arc<Generation>>,
}

impl Call {
    #[inline]
    pub(crate) const fn new(
        circuit: Arc<Circuitry>,
        pass: Pass,
        generation: Option<Arc<Generation>>,
    ) -> Self {
        Self { circuit, pass: Some(pass), generation }
    }

    /// A panic in there is a failure.
    #[inline]
    pub(crate) fn watch<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let mut watched = Watched { call: self, done: false };
        let value = step();
        watched.done = true;
        value
    }

    #[inline]
    fn end(&mut self, verdict: Verdict) {
        if let Some(pass) = self.pass.take() {
            self.circuit.ended(pass, verdict, self.generation.as_ref());
        }
    }
}

struct Watched<'a> {
    call: &'a mut Call,
    done: bool,
}

impl Drop for Watched<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.done {
            self.call.end(Verdict::Bad);
        }
    }
}
