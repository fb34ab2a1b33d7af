//! The service: calls, and keeps what a further try needs.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tower_mq_delivery::{BoxError, IntoAnswer, Work};
use tower_service::Service;

use crate::{future::ResponseFuture, layer::Settings};

/// Tries again what failed. Built by [`RetryLayer`](crate::RetryLayer).
///
/// Further tries are made by clones of the inner service as it was when the layer was put around it, or as
/// [`get_mut`](Self::get_mut) has left it.
///
/// # Cancel safety
/// A response future that is dropped drops the try that runs, or ends the rest. A message that was parked is awake
/// again.
///
/// # Panics
/// A panic of the inner service goes on: `handler(f)` turns its panics into errors, which are retried like others. In
/// place and parked, a failure needs a runtime with a clock, or panics.
///
/// # Cost
/// A clone of the message, which is kept for a further try. Nothing is allocated before a try fails, unless that clone
/// allocates: a batch has a list of its members. The inner service is cloned when a try has failed, and not before.
pub struct Retry<S> {
    inner: S,
    shared: Arc<Shared<S>>,
    /// Somebody may have changed the inner service.
    touched: bool,
}

/// What all clones and their futures share.
pub(crate) struct Shared<S> {
    pub(crate) settings: Settings,
    /// Only ever cloned, so never ready. The lock is for services that are not `Sync`.
    again: Mutex<S>,
}

impl<S: Clone> Shared<S> {
    /// A service for further tries. It is not ready.
    pub(crate) fn again(&self) -> S {
        self.again.lock().clone()
    }
}

impl<S: Clone> Retry<S> {
    pub(crate) fn new(inner: S, settings: Settings) -> Self {
        let again = Mutex::new(inner.clone());
        Self { inner, shared: Arc::new(Shared { settings, again }), touched: false }
    }

    #[cold]
    fn renew(&mut self) {
        let (settings, again) = (self.shared.settings.clone(), Mutex::new(self.inner.clone()));
        (self.shared, self.touched) = (Arc::new(Shared { settings, again }), false);
    }
}

impl<S> Retry<S> {
    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service. What is changed holds for further tries, too: of calls that are yet to come.
    pub const fn get_mut(&mut self) -> &mut S {
        self.touched = true;
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, W> Service<W> for Retry<S>
where
    W: Work,
    S: Service<W> + Clone,
    S::Response: IntoAnswer<W>,
    S::Error: Into<BoxError>,
{
    type Response = W::Answer;
    type Error = BoxError;
    type Future = ResponseFuture<S, W>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, work: W) -> Self::Future {
        if self.touched {
            self.renew();
        }
        let kept = work.clone();
        ResponseFuture::new(self.inner.call(work), kept, self.shared.clone())
    }
}

// By hand: what is shared need not be cloned.
impl<S: Clone> Clone for Retry<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: self.shared.clone(), touched: self.touched }
    }
}

impl<S: fmt::Debug> fmt::Debug for Retry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}
