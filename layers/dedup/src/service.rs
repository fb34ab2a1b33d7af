//! The service: asks first, and calls then.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_mq_delivery::{BoxError, Event, IntoOutcome, Message, Outcome};
use tower_service::Service;

use crate::{
    Begun, Id, MemoryStore, Store,
    claim::Claim,
    future::{Held, ResponseFuture},
    settings::Settings,
};

/// Handles each message id once. Built by [`DedupLayer`](crate::DedupLayer).
///
/// # Cancel safety
/// A response future that is dropped before its handler has ended forgets the id. From then on the id is as good as
/// remembered.
///
/// # Panics
/// A panic of the inner service or of the key function goes on. An id that was running is forgotten.
///
/// # Cost
/// With the [store in memory](MemoryStore): no allocation. With a remote one: a round trip before the handler and one
/// behind it, and a few small allocations.
pub struct Dedup<S, St = MemoryStore> {
    pub(crate) inner: S,
    pub(crate) settings: Arc<Settings<St>>,
    /// The source that the last message came from, and the scope of its name: mostly there is one.
    pub(crate) last: Option<(u64, Id)>,
}

impl<S, St> Dedup<S, St> {
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

impl<S, St> Service<Message> for Dedup<S, St>
where
    S: Service<Message> + Clone,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
    St: Store,
{
    type Response = Outcome;
    type Error = BoxError;
    type Future = ResponseFuture<S, St>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, message: Message) -> Self::Future {
        let Some(id) = self.settings.id(&message, &mut self.last) else {
            self.settings.unidentified(&message);
            return ResponseFuture::running(self.inner.call(message), None);
        };
        match self.settings.store.begin_now(id) {
            Some(Begun::New(lease)) => {
                // Before the call: if that panics, the id is forgotten.
                let claim = Claim::new(&self.settings, id, lease, &message);
                ResponseFuture::running(self.inner.call(message), Some(claim))
            }
            Some(Begun::Running) => self.follow(message, id),
            Some(Begun::Done) => self.skip(&message),
            None => self.ask(message, id),
        }
    }
}

impl<S, St> Dedup<S, St>
where
    S: Service<Message> + Clone,
    St: Store,
{
    /// Takes the service that was made ready, and leaves one that is not.
    fn take(&mut self) -> S {
        let clone = self.inner.clone();
        std::mem::replace(&mut self.inner, clone)
    }

    /// Nothing is called. What was made ready is dropped, and not only declined: what it has reserved may be what the
    /// first one waits for, between two of its tries.
    fn decline(&mut self, message: &Message) {
        message.turn().decline();
        drop(self.take());
    }

    fn ask(&mut self, message: Message, id: Id) -> ResponseFuture<S, St> {
        ResponseFuture::held(Held::asking(self.take(), message, id, &self.settings))
    }

    #[cold]
    fn follow(&mut self, message: Message, id: Id) -> ResponseFuture<S, St> {
        self.decline(&message);
        ResponseFuture::held(Held::waiting(self.inner.clone(), message, id, &self.settings))
    }

    #[cold]
    fn skip(&mut self, message: &Message) -> ResponseFuture<S, St> {
        self.decline(message);
        message.origin().report(&Event::Duplicate { message });
        ResponseFuture::acked()
    }
}

impl<S: Clone, St> Clone for Dedup<S, St> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone(), last: self.last }
    }
}

impl<S: fmt::Debug, St> fmt::Debug for Dedup<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dedup").field("inner", &self.inner).finish_non_exhaustive()
    }
}
