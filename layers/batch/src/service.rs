//! The service: takes a place, then joins a batch.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use tokio::{
    runtime::Handle,
    sync::{AcquireError, OwnedSemaphorePermit, TryAcquireError},
};
use tower_mq_delivery::{Batch, BoxError, Event, IntoAnswer, Message, Outcome};
use tower_service::Service;

use crate::{
    BatchLayer,
    future::{Member, ResponseFuture},
    gathering::is_void,
    owners::{Joined, Owners, Work},
    worker::{Tenure, Worker},
};

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

/// Gathers messages into batches. Built by [`BatchLayer`].
///
/// Clones share the open batches: layers outside of this one may call a clone for each message.
pub struct Batcher<S> {
    inner: S,
    owners: Arc<Owners>,
    /// The place reserved in `poll_ready`.
    place: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
}

impl<S> Batcher<S> {
    pub(crate) fn new(inner: S, settings: &BatchLayer) -> Self {
        Self { inner, owners: Arc::new(Owners::new(settings)), place: None, waiting: None }
    }

    /// The inner service, of which each driver or lane has a clone.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    #[cfg(test)]
    pub(crate) fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }
}

impl<S> Service<Message> for Batcher<S>
where
    S: Service<Batch<Message>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: IntoAnswer<Batch<Message>>,
    S::Error: Into<BoxError>,
{
    type Response = Outcome;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.place.is_some() {
            return Poll::Ready(Ok(()));
        }
        let places = self.owners.places();
        if self.waiting.is_none() {
            match places.clone().try_acquire_owned() {
                Ok(place) => {
                    self.place = Some(place);
                    return Poll::Ready(Ok(()));
                }
                Err(TryAcquireError::Closed) => return Poll::Ready(Err(self.owners.failure())),
                Err(TryAcquireError::NoPermits) => {}
            }
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(places.clone().acquire_owned()));
        let place = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        match place {
            Ok(place) => self.place = Some(place),
            Err(_) => return Poll::Ready(Err(self.owners.failure())),
        }
        Poll::Ready(Ok(()))
    }

    /// # Panics
    /// If `poll_ready` has not said that it is ready.
    fn call(&mut self, message: Message) -> ResponseFuture {
        // A user's function: if it panics, the place is still reserved.
        let group = self.owners.settings().group(&message);
        let Some(place) = self.place.take() else {
            panic!("`Batcher` was called before `poll_ready` said that it is ready");
        };
        if is_void(message.generation()) {
            message.origin().report(&Event::NotHandled { message: &message });
            return ResponseFuture::answered(Ok(Outcome::Release));
        }
        let turn = message.turn().clone();
        let Joined { number, seats, seat, idle, small, next } = match self.owners.join(message, group, place)
        {
            Ok(joined) => joined,
            Err(error) => return ResponseFuture::answered(Err(error.into())),
        };
        let owner = turn.owner();
        let member = Member { owners: self.owners.clone(), owner, number, seats, seat };
        match next {
            Work::Nothing => {}
            Work::Wake(waker) => waker.wake(),
            Work::Start => {
                let tenure = Tenure::new(self.owners.clone(), owner);
                match Handle::try_current() {
                    Ok(runtime) => drop(runtime.spawn(Worker::new(tenure, self.inner.clone()))),
                    Err(_) => tenure.no_runtime(),
                }
            }
        }
        if let Some(origin) = small {
            let (size, window) = (self.owners.settings().size, origin.window());
            origin.warn(&format!(
                "batches of {size} can never be full, as the window is {window}: make the window (prefetch, credit) \
                 larger, or the batches smaller"
            ));
        }
        if let Some(idle) = idle {
            turn.when_idle(&Waker::from(idle));
        }
        turn.pass();
        ResponseFuture::member(member)
    }
}

// By hand: a clone has reserved nothing.
impl<S: Clone> Clone for Batcher<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), owners: self.owners.clone(), place: None, waiting: None }
    }
}

impl<S: fmt::Debug> fmt::Debug for Batcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher")
            .field("inner", &self.inner)
            .field("settings", self.owners.settings())
            .field("ready", &self.place.is_some())
            .finish()
    }
}
