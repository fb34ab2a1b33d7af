//! The service: one span for each request.

use std::task::{Context, Poll};

use tower_mq_delivery::Carry;
use tower_service::Service;

use crate::{TraceLayer, future::ResponseFuture, span};

/// Runs each request in a span of its own. Built by [`TraceLayer`].
///
/// The span is entered while the inner service is called, whenever its future is polled, and while that is dropped. It
/// is closed when the response is there.
///
/// # Cancel safety
/// A response future that is dropped before its end drops the inner one and closes its span, with the outcome `dropped`.
///
/// # Panics
/// A panic of the inner service goes on, and closes the span with the error type `panic`.
///
/// # Cost
/// Without a subscriber that wants the level: the look at one number, and no allocation. Else what the subscriber
/// costs; headers are read then, and not before.
#[derive(Clone, Debug)]
pub struct Trace<S> {
    pub(crate) inner: S,
    pub(crate) settings: TraceLayer,
}

impl<S> Trace<S> {
    /// Traces as [`TraceLayer::new`] says.
    pub const fn new(inner: S) -> Self {
        Self { inner, settings: TraceLayer::new() }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R> Service<R> for Trace<S>
where
    R: Carry + 'static,
    S: Service<R>,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline(always)]
    fn call(&mut self, request: R) -> Self::Future {
        let span = span::of(&self.settings, &request);
        ResponseFuture::new(span, || self.inner.call(request))
    }
}
