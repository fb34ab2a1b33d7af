//! Handles each id once. It asks its store first, and moves its inner service into the future meanwhile.

use std::{
    collections::HashSet,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use pin_project::pin_project;
use tower::{Layer, Service};
use tower_mq::{BoxError, IntoOutcome, Message, Outcome};

type Store = Arc<Mutex<HashSet<String>>>;

#[derive(Clone, Debug)]
pub struct DedupLayer(Store);

impl DedupLayer {
    pub fn in_memory() -> Self {
        Self(Store::default())
    }
}

impl<S> Layer<S> for DedupLayer {
    type Service = Dedup<S>;

    fn layer(&self, inner: S) -> Dedup<S> {
        Dedup { inner, done: self.0.clone() }
    }
}

#[derive(Clone, Debug)]
pub struct Dedup<S> {
    inner: S,
    done: Store,
}

impl<S> Service<Message> for Dedup<S>
where
    S: Service<Message> + Clone,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
{
    type Response = Outcome;
    type Error = BoxError;
    type Future = DedupFuture<S, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, message: Message) -> Self::Future {
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let id = message.id().map(|id| id.into_owned());
        DedupFuture { begin: Some((ready, message)), running: None, id, done: self.done.clone() }
    }
}

#[pin_project]
pub struct DedupFuture<S, F> {
    begin: Option<(S, Message)>,
    #[pin]
    running: Option<F>,
    id: Option<String>,
    done: Store,
}

impl<S> Future for DedupFuture<S, S::Future>
where
    S: Service<Message>,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
{
    type Output = Result<Outcome, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some((mut service, message)) = this.begin.take() {
            if this.id.as_ref().is_some_and(|id| this.done.lock().contains(id)) {
                return Poll::Ready(Ok(Outcome::Ack));
            }
            this.running.set(Some(service.call(message)));
        }
        let Some(running) = this.running.as_pin_mut() else { return Poll::Pending };
        let outcome = ready!(running.poll(cx)).map_err(Into::into).and_then(IntoOutcome::into_outcome);
        if matches!(outcome, Ok(Outcome::Ack)) {
            this.done.lock().extend(this.id.take());
        }
        Poll::Ready(outcome)
    }
}
