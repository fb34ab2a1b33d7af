//! The service: calls, and keeps what a further try needs.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tower_mq_delivery::{BoxError, IntoAnswer, Work};
use tower_service::Service;

use crate::{
    future::ResponseFuture,
    layer::{Mode, Settings},
    tries::Tries,
};

/// Tries again what failed. Built by [`RetryLayer`](crate::RetryLayer).
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
/// A clone of the message and one of the inner service, which is kept for a further try. Nothing is allocated before
/// a try fails, unless those clones allocate: a batch has a list of its members, a `BoxCloneService` two boxes.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    pub(crate) inner: S,
    pub(crate) settings: Arc<Settings>,
}

impl<S> Retry<S> {
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

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, work: W) -> Self::Future {
        let settings = &self.settings;
        let here = settings.mode != Mode::Requeue
            || work.messages().iter().any(|message| message.capabilities().redelivery_disturbs_others);
        let tries = Tries::new(work.clone(), settings.clone());
        // A clone is not ready: it is for the tries to come.
        let again = here.then(|| self.inner.clone());
        ResponseFuture::new(self.inner.call(work), again, tries)
    }
}
