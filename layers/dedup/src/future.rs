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
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S: Service<Message>, St: Store> {
    // Before the claim, so dropped before it: nobody begins with the id while somebody still works on it.
    #[pin]
    state: State<S::Future, St>,
    claim: Option<Claim<St>>,
    /// What is not called yet. Boxed: mostly there is none.
    held: Option<Pin<Box<Held<S, St>>>>,
}

#[pin_project(project = StateProj)]
enum State<F, St: Store> {
    /// The inner service works.
    Running(#[pin] F),
    /// It was handled, and the store is told.
    Finishing(#[pin] St::Finish),
    /// It was handled before.
    Acked,
    /// It is over, unless something is held.
    Over,
}

/// A message that is not handed to the inner service yet.
#[pin_project(project = HeldProj)]
pub(crate) struct Held<S, St: Store> {
    #[pin]
    step: Step<St>,
    service: S,
    ready: bool,
    message: Message,
    id: Id,
    settings: Arc<Settings<St>>,
    round: u32,
    /// Since it waits: until when, and that it holds up the queue.
    stop: Option<Stop>,
    stalled: Option<Stalled>,
}

#[pin_project(project = StepProj)]
enum Step<St: Store> {
    /// The store is asked.
    Asking(#[pin] St::Begin),
    /// The id is running elsewhere, or the store has failed.
    Waiting(#[pin] St::Wait),
    /// The id may be handled as soon as the inner service is ready.
    Readying,
}

type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<S, St: Store> Held<S, St> {
    /// Keeps the service that was made ready, and asks the store.
    pub(crate) fn asking(
        service: S,
        message: Message,
        id: Id,
        settings: &Arc<Settings<St>>,
    ) -> Pin<Box<Self>> {
        let (step, settings) = (Step::Asking(settings.store.begin(id)), settings.clone());
        let (stop, stalled) = (None, None);
        Box::pin(Self { step, service, ready: true, message, id, settings, round: 0, stop, stalled })
    }

    /// Keeps a service that must be made ready, and waits.
    pub(crate) fn waiting(
        service: S,
        message: Message,
        id: Id,
        settings: &Arc<Settings<St>>,
    ) -> Pin<Box<Self>>
    where
        S: Clone,
    {
        let (step, settings) = (Step::Readying, settings.clone());
        let (stop, stalled) = (None, None);
        let mut held =
            Box::pin(Self { step, service, ready: false, message, id, settings, round: 0, stop, stalled });
        held.as_mut().project().wait();
        held
    }
}

type Answer = Result<Outcome, BoxError>;

impl<S, St> Held<S, St>
where
    S: Service<Message> + Clone,
    S::Error: Into<BoxError>,
    St: Store,
{
    /// Ready when it ends here, or, with `None`, when it is to be handed to the service.
    fn poll(
        self: Pin<&mut Self>,
        claim: &mut Option<Claim<St>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Answer>> {
        let mut this = self.project();
        loop {
            let begun = match this.step.as_mut().project() {
                StepProj::Readying => {
                    if !*this.ready
                        && let Err(error) = ready!(this.service.poll_ready(cx))
                    {
                        return Poll::Ready(Some(Err(error.into())));
                    }
                    *this.ready = true;
                    if this.message.is_stale() || this.message.origin().drain() == Some(Drain::Release) {
                        this.message.origin().report(&Event::NotHandled { message: this.message });
                        return Poll::Ready(Some(Ok(Outcome::Release)));
                    }
                    return Poll::Ready(None);
                }
                _ if this.stop.as_mut().is_some_and(|stop| stop.as_mut().poll(cx).is_ready()) => {
                    tracing::debug!(
                        destination = %this.message.destination(),
                        "a message that waited for its twin, or for the store of ids, goes back to its queue"
                    );
                    return Poll::Ready(Some(Ok(Outcome::Release)));
                }
                StepProj::Asking(begin) => ready!(begin.poll(cx)),
                StepProj::Waiting(wait) => {
                    ready!(wait.poll(cx));
                    match this.settings.store.begin_now(*this.id) {
                        Some(begun) => Ok(begun),
                        None => {
                            this.step.set(Step::Asking(this.settings.store.begin(*this.id)));
                            continue;
                        }
                    }
                }
            };
            if begun.is_ok() {
                this.settings.answered();
            }
            match begun {
                Ok(Begun::New(lease)) => {
                    *claim = Some(Claim::new(this.settings, *this.id, lease, this.message));
                    this.step.set(Step::Readying);
                }
                Ok(Begun::Running) => this.wait(),
                Ok(Begun::Done) => {
                    this.message.origin().report(&Event::Duplicate { message: this.message });
                    return Poll::Ready(Some(Ok(Outcome::Ack)));
                }
                Err(error) => {
                    this.settings.failed(this.message, &error);
                    match this.settings.down {
                        StoreDown::Handle => this.step.set(Step::Readying),
                        StoreDown::Wait => this.wait(),
                    }
                }
            }
        }
    }
}

impl<S: Clone, St: Store> HeldProj<'_, S, St> {
    /// It has to wait, from now on if it has not waited before.
    fn wait(&mut self) {
        if std::mem::take(self.ready) {
            // As in `call`: what is reserved is given back, in case that the first one waits for it.
            *self.service = self.service.clone();
        }
        if self.stop.is_none() {
            *self.stop = Some(Box::pin(stop(self.message.clone(), self.settings.patience, St::LOCAL)));
            *self.stalled = Some(self.message.turn().stall());
        }
        self.step.set(Step::Waiting(self.settings.store.wait(*self.id, *self.round)));
        *self.round += 1;
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

    pub(crate) const fn acked() -> Self {
        Self { state: State::Acked, claim: None, held: None }
    }

    pub(crate) const fn held(held: Pin<Box<Held<S, St>>>) -> Self {
        Self { state: State::Over, claim: None, held: Some(held) }
    }
}

impl<S, St> Future for ResponseFuture<S, St>
where
    S: Service<Message> + Clone,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
    St: Store,
{
    type Output = Answer;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            let StateProj::Running(inner) = this.state.as_mut().project() else {
                match ready!(self.as_mut().poll_else(cx)) {
                    Some(answer) => return Poll::Ready(answer),
                    None => continue,
                }
            };
            let answer = ready!(inner.poll(cx)).map_err(Into::into).and_then(IntoOutcome::into_outcome);
            // What the handler holds is freed before anybody else begins with the id.
            this.state.set(State::Over);
            match this.claim {
                Some(claim) if matches!(answer, Ok(Outcome::Ack)) && !claim.message().is_dead_lettered() => {
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
    }
}

impl<S, St> ResponseFuture<S, St>
where
    S: Service<Message> + Clone,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
    St: Store,
{
    /// One step while the inner service does not work. `Some`: it ends here.
    #[cold]
    fn poll_else(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        let mut this = self.project();
        match this.state.as_mut().project() {
            StateProj::Acked => {
                this.state.set(State::Over);
                Poll::Ready(Some(Ok(Outcome::Ack)))
            }
            StateProj::Finishing(finish) => {
                let finished = ready!(finish.poll(cx));
                this.state.set(State::Over);
                if let (Err(error), Some(claim)) = (&finished, this.claim) {
                    claim.settings().failed(claim.message(), error);
                }
                Poll::Ready(Some(Ok(Outcome::Ack)))
            }
            StateProj::Running(_) => Poll::Ready(None),
            StateProj::Over => {
                let Some(held) = this.held else { return Poll::Pending };
                let answer = ready!(held.as_mut().poll(this.claim, cx));
                // Nothing is polled again if the service panics.
                let Some(mut held) = this.held.take() else { return Poll::Pending };
                if answer.is_some() {
                    *this.claim = None;
                } else {
                    let held = held.as_mut().project();
                    *held.stalled = None;
                    this.state.set(State::Running(held.service.call(held.message.clone())));
                }
                Poll::Ready(answer)
            }
        }
    }
}

impl<S: Service<Message>, St: Store> fmt::Debug for ResponseFuture<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Running(_) => "running",
            State::Finishing(_) => "finishing",
            State::Acked => "acked",
            State::Over if self.held.is_some() => "held",
            State::Over => "over",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
