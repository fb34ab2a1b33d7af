//! The service: looks at what becomes of each message.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tower_mq_delivery::{BoxError, IntoOutcome, Message, Outcome, Publication, Receipt};
use tower_service::Service;

use crate::{future::ResponseFuture, layer::Settings};

/// Stores a confirmed copy of each rejected message before it is acked. Built by
/// [`DeadLetterLayer`](crate::DeadLetterLayer).
///
/// # Cancel safety
/// A response future that is dropped drops the inner future, or the publisher's, and answers nothing: Settle releases the
/// delivery. A copy that was under way may be stored.
///
/// # Panics
/// A panic of the publisher, in any of its methods, is a try that failed. One of the inner service goes on to who polls:
/// `handler(f)` has caught its own, and a `CatchPanicLayer` catches those of other services, so that they are judged
/// here as errors.
///
/// A reject needs tokio's timer: outside of a runtime that has it, the response panics.
///
/// # Cost
/// No allocation, and one more clone of the message, until a message is rejected. The publisher is not touched until then.
pub struct DeadLetter<S, P> {
    inner: S,
    shared: Arc<Shared<P>>,
}

/// What all clones and their futures share.
pub(crate) struct Shared<P> {
    /// Only ever cloned, so never ready. The lock is for publishers that are not `Sync`.
    publisher: Mutex<P>,
    pub(crate) settings: Settings,
}

impl<P: Clone> Shared<P> {
    pub(crate) fn publisher(&self) -> P {
        self.publisher.lock().clone()
    }
}

impl<S, P> DeadLetter<S, P> {
    /// Publishes dead letters with this publisher, with the defaults of
    /// [`DeadLetterLayer::new`](crate::DeadLetterLayer::new).
    pub fn new(inner: S, publisher: P) -> Self {
        Self::with(inner, publisher, Settings::new())
    }

    pub(crate) fn with(inner: S, publisher: P, settings: Settings) -> Self {
        Self { inner, shared: Arc::new(Shared { publisher: Mutex::new(publisher), settings }) }
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

impl<S, P> Service<Message> for DeadLetter<S, P>
where
    S: Service<Message>,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
    P: Service<Publication, Response = Receipt, Future: Send> + Clone + Send + 'static,
    P::Error: Into<BoxError>,
{
    type Response = Outcome;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, P>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, message: Message) -> Self::Future {
        let kept = message.clone();
        ResponseFuture::new(self.inner.call(message), kept, self.shared.clone())
    }
}

// By hand: the publisher is shared.
impl<S: Clone, P> Clone for DeadLetter<S, P> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: self.shared.clone() }
    }
}

impl<S: fmt::Debug, P> fmt::Debug for DeadLetter<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("inner", &self.inner)
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}
