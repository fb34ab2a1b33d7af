//! The response of [`Dedup`](crate::Dedup).

use std::{
    fmt,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project::pin_project;
use tower_mq_delivery::{BoxError, Drain, Event, IntoOutcome, Message, Outcome, Stalled};
use tower_service::Service;

use crate::{Begun, Id, Store, StoreDown, claim::Claim, settings::Settings};

/// The response of [`Dedup`](crate::Dedup). After it was ready it is never ready again.
///
/// # Cancel safety
/// Dropped before its handler has ended, it forgets the id, after the handler is gone.
#[pin_project(project = ResponseProj)]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S: Service<Message>, St: Store> {
    // Before the claim, so dropped before it: nobody begins with the id while somebody still works on it.
    #[pin]
    state: State<S::Future, St>,
    claim: Option<Claim<St>>,
    /// What is not called yet. Boxed: mostly there is none.
    held: Option<Box<Held<S, St>>>,
}

#[pin_project(project = StateProj)]
enum State<F, St: Store> {
    /// The inner service works.
    Running(#[pin] F),
    /// The store is asked.
    Asking(#[pin] St::Begin),
    /// The id is running elsewhere, or the store has failed.
    Waiting(#[pin] St::Wait),
    /// The id may be handled as soon as the inner service is ready.
    Readying,
    /// It was handled, and the store is told.
    Finishing(#[pin] St::Finish),
    /// It is over, with this outcome if it was not given yet.
    Over(Option<Outcome>),
}

/// A message that is not handed to the inner service yet.
pub(crate) struct Held<S, St> {
    service: S,
    ready: bool,
    message: Message,
    id: Id,
    settings: Arc<Settings<St>>,
    round: u32,
    /// Since it waits: until when, and that it holds up the queue.
    stop: Option<Stop>,
    _stalled: Option<Stalled>,
}

type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<S, St: Store> Held<S, St> {
    /// Keeps the service that was made ready.
    pub(crate) fn new(service: S, message: Message, id: Id, settings: &Arc<Settings<St>>) -> Self {
        let settings = settings.clone();
        Self { service, ready: true, message, id, settings, round: 0, stop: None, _stalled: None }
    }

    /// Keeps a service that must be made ready.
    pub(crate) fn unready(service: S, message: Message, id: Id, settings: &Arc<Settings<St>>) -> Self {
        Self { ready: false, ..Self::new(service, message, id, settings) }
    }

    /// It has to wait, from now on if it has not waited before.
    fn wait(&mut self) -> St::Wait
    where
        S: Clone,
    {
        if std::mem::take(&mut self.ready) {
            // As in `call`: what is reserved is given back, in case that the first one waits for it.
            self.service = self.service.clone();
        }
        if self.stop.is_none() {
            self.stop = Some(Box::pin(stop(self.message.clone(), self.settings.patience, St::LOCAL)));
            self._stalled = Some(self.message.turn().stall());
        }
        self.round += 1;
        self.settings.store.wait(self.id, self.round - 1)
    }

    fn is_stopped(&mut self, cx: &mut Context<'_>) -> bool {
        self.stop.as_mut().is_some_and(|stop| stop.as_mut().poll(cx).is_ready())
    }

    /// It must not be handled any more.
    fn is_lost(&self) -> bool {
        self.message.is_stale() || self.message.origin().drain() == Some(Drain::Release)
    }
}

/// Ends when waiting makes no sense any more.
async fn stop(message: Message, patience: Duration, local: bool) {
    let generation = message.generation().clone();
    drop(message);
    let mut over = pin!(generation.over());
    let mut drains = pin!(generation.origin().draining());
    let mut late = pin!(tokio::time::sleep(patience));
    std::future::poll_fn(|cx| {
        let over = over.as_mut().poll(cx).is_ready() || late.as_mut().poll(cx).is_ready();
        match over || !local && drains.as_mut().poll(cx).is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

impl<S: Service<Message>, St: Store> ResponseFuture<S, St> {
    #[inline]
    pub(crate) const fn running(inner: S::Future, claim: Option<Claim<St>>) -> Self {
        Self { state: State::Running(inner), claim, held: None }
    }

    pub(crate) const fn answered(outcome: Outcome) -> Self {
        Self { state: State::Over(Some(outcome)), claim: None, held: None }
    }

    pub(crate) fn asking(held: Held<S, St>) -> Self {
        let begin = held.settings.store.begin(held.id);
        Self { state: State::Asking(begin), claim: None, held: Some(Box::new(held)) }
    }

    pub(crate) fn waiting(mut held: Held<S, St>) -> Self
    where
        S: Clone,
    {
        Self { state: State::Waiting(held.wait()), claim: None, held: Some(Box::new(held)) }
    }
}

impl<S, St> Future for ResponseFuture<S, St>
where
    S: Service<Message> + Clone,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
    St: Store,
{
    type Output = Result<Outcome, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            match this.state.as_mut().project() {
                StateProj::Running(inner) => {
                    let answer =
                        ready!(inner.poll(cx)).map_err(Into::into).and_then(IntoOutcome::into_outcome);
                    // What the handler holds is freed before anybody else begins with the id.
                    this.state.set(State::Over(None));
                    let handled = matches!(answer, Ok(Outcome::Ack));
                    match this.claim {
                        Some(claim) if handled && !claim.message().is_dead_lettered() => {
                            // Nothing of it is left to forget, so the claim may stay.
                            let Some(finish) = claim.finish() else { return Poll::Ready(answer) };
                            this.state.set(State::Finishing(finish));
                        }
                        claim => {
                            *claim = None;
                            return Poll::Ready(answer);
                        }
                    }
                }
                StateProj::Finishing(finish) => {
                    let finished = ready!(finish.poll(cx));
                    this.state.set(State::Over(None));
                    if let (Err(error), Some(claim)) = (&finished, this.claim) {
                        claim.settings().failed(claim.message(), error);
                    }
                    return Poll::Ready(Ok(Outcome::Ack));
                }
                StateProj::Over(outcome) => {
                    return outcome.take().map_or(Poll::Pending, |outcome| Poll::Ready(Ok(outcome)));
                }
                _ => {
                    if let Some(answer) = ready!(self.as_mut().poll_held(cx)) {
                        return Poll::Ready(answer);
                    }
                }
            }
        }
    }
}

impl<S, St> ResponseFuture<S, St>
where
    S: Service<Message> + Clone,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
    St: Store,
{
    /// One step of a message that is held. `Some`: it ends here.
    #[cold]
    fn poll_held(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Outcome, BoxError>>> {
        let mut this = self.project();
        let Some(held) = this.held else { return Poll::Pending };
        let begun = match this.state.as_mut().project() {
            StateProj::Readying => {
                if !held.ready {
                    match ready!(held.service.poll_ready(cx)) {
                        Ok(()) => held.ready = true,
                        Err(error) => {
                            this.state.set(State::Over(None));
                            *this.claim = None;
                            return Poll::Ready(Some(Err(error.into())));
                        }
                    }
                }
                return Poll::Ready(Self::start(this));
            }
            _ if held.is_stopped(cx) => {
                tracing::debug!(
                    destination = %held.message.destination(),
                    "a message that waited for its twin, or for the store of ids, goes back to its queue"
                );
                this.state.set(State::Over(None));
                return Poll::Ready(Some(Ok(Outcome::Release)));
            }
            StateProj::Asking(begin) => ready!(begin.poll(cx)),
            StateProj::Waiting(wait) => {
                ready!(wait.poll(cx));
                match held.settings.store.begin_now(held.id) {
                    Some(begun) => Ok(begun),
                    None => {
                        this.state.set(State::Asking(held.settings.store.begin(held.id)));
                        return Poll::Ready(None);
                    }
                }
            }
            _ => return Poll::Pending,
        };
        if begun.is_ok() {
            held.settings.answered();
        }
        let next = match begun {
            Ok(Begun::New(lease)) => {
                *this.claim = Some(Claim::new(&held.settings, held.id, lease, &held.message));
                State::Readying
            }
            Ok(Begun::Running) => State::Waiting(held.wait()),
            Ok(Begun::Done) => {
                held.message.origin().report(&Event::Duplicate { message: &held.message });
                State::Over(Some(Outcome::Ack))
            }
            Err(error) => {
                held.settings.failed(&held.message, &error);
                match held.settings.down {
                    StoreDown::Handle => State::Readying,
                    StoreDown::Wait => State::Waiting(held.wait()),
                }
            }
        };
        this.state.set(next);
        Poll::Ready(None)
    }

    /// Hands the message to the inner service, which is ready.
    fn start(mut this: ResponseProj<'_, S, St>) -> Option<Result<Outcome, BoxError>> {
        let held = this.held.take()?;
        // Nothing is polled again if the service panics.
        this.state.set(State::Over(None));
        if held.is_lost() {
            *this.claim = None;
            held.message.origin().report(&Event::NotHandled { message: &held.message });
            return Some(Ok(Outcome::Release));
        }
        let Held { mut service, message, _stalled, .. } = *held;
        drop(_stalled);
        this.state.set(State::Running(service.call(message)));
        None
    }
}

impl<S: Service<Message>, St: Store> fmt::Debug for ResponseFuture<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Running(_) => "running",
            State::Asking(_) => "asking",
            State::Waiting(_) => "waiting",
            State::Readying => "readying",
            State::Finishing(_) => "finishing",
            State::Over(_) => "over",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
