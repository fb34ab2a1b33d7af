//! The task of one owner: waits until a batch is due, and runs one after the other.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project::{pin_project, pinned_drop};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_mq_delivery::{
    Batch, BoxError, Event, Generation, IntoAnswer, Message, Outcomes, Panic, Panicked, SharedError,
    WrongLength,
};
use tower_service::Service;

use crate::{
    Closed, NoRuntime,
    gathering::Started,
    owners::{Next, Owners},
    watch::Watch,
};

/// Rounds in one poll before the task gives way.
const BUDGET: u32 = 32;

/// Runs the batches of one owner. Started with the first member; it ends when nothing is left.
#[pin_project(PinnedDrop)]
pub(crate) struct Worker<S>
where
    S: Service<Batch<Message>>,
{
    tenure: Tenure,
    #[pin]
    running: Option<S::Future>,
    started: Option<Started>,
    /// What was asked for readiness. `None`: a fresh clone is made when it is needed.
    service: Option<S>,
    /// It was asked, and not called yet.
    asked: bool,
    /// Never asked.
    template: S,
    #[pin]
    timer: Option<Sleep>,
    watches: Vec<Watch>,
}

/// An owner has a task while this is held. What is left then is told that it has ended.
pub(crate) struct Tenure {
    owners: Arc<Owners>,
    owner: usize,
    over: bool,
}

impl Tenure {
    pub(crate) fn new(owners: Arc<Owners>, owner: usize) -> Self {
        Self { owners, owner, over: false }
    }

    /// There is nothing that the task could run on.
    pub(crate) fn no_runtime(mut self) {
        self.over = true;
        self.owners.close(self.owner, || NoRuntime.into());
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if !self.over {
            self.owners.close(self.owner, || Closed.into());
        }
    }
}

/// How far a batch that is due got.
enum Step {
    Called,
    /// There was none any more, and the service was made ready for nothing.
    Gone,
    NotReady,
    Failed(BoxError),
}

impl<S> Worker<S>
where
    S: Service<Batch<Message>> + Clone,
    S::Response: IntoAnswer<Batch<Message>>,
    S::Error: Into<BoxError>,
{
    pub(crate) fn new(tenure: Tenure, template: S) -> Self {
        Self {
            tenure,
            running: None,
            started: None,
            service: None,
            asked: false,
            template,
            timer: None,
            watches: Vec::new(),
        }
    }

    /// Polls what runs, and tells its members.
    fn poll_running(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let mut this = self.project();
        let Some(started) = this.started else { return };
        if started.seats.are_left() {
            empty(&mut this.running, &started.generation);
        } else if let Some(running) = this.running.as_mut().as_pin_mut() {
            let polled = catch_unwind(AssertUnwindSafe(|| {
                running.poll(cx).map(|answer| answer.map_err(Into::into).and_then(IntoAnswer::into_answer))
            }));
            let answer = match polled {
                Ok(Poll::Pending) => return,
                Ok(Poll::Ready(answer)) => answer,
                Err(panic) => Err(panicked(&started.generation, &panic)),
            };
            // What the handler holds is freed before its members hear of its end.
            empty(&mut this.running, &started.generation);
            return Self::finish(this.tenure, this.started, answer);
        }
        Self::finish(this.tenure, this.started, Err(Closed.into()));
    }

    fn finish(tenure: &Tenure, started: &mut Option<Started>, answer: Result<Outcomes, BoxError>) {
        if let Some(started) = started.take() {
            tenure.owners.finish(tenure.owner, &started);
            tell(started, answer);
        }
    }

    /// Asks for readiness, and starts the batch that is due.
    fn start(self: Pin<&mut Self>, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let (owners, owner) = (&this.tenure.owners, this.tenure.owner);
        let step = catch_unwind(AssertUnwindSafe(|| {
            let service = this.service.get_or_insert_with(|| this.template.clone());
            match service.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Step::Failed(error.into()),
                Poll::Pending => return Step::NotReady,
            }
            let Some(due) = owners.start(owner, now) else { return Step::Gone };
            let (batch, started) = due.close();
            let origin = started.generation.origin().clone();
            *this.started = Some(started);
            origin.report(&Event::Gathered { batch: &batch });
            this.running.set(Some(service.call(batch)));
            Step::Called
        }));
        *this.asked = matches!(step, Ok(Step::NotReady | Step::Gone));
        match step {
            Ok(Step::Called | Step::Gone) => {}
            Ok(Step::NotReady) => return Poll::Pending,
            Ok(Step::Failed(error)) => owners.fail(error),
            Err(panic) => {
                // Its state may be broken.
                discard(this.service);
                if this.started.is_none() {
                    *this.started = owners.start(owner, now).map(|due| due.close().1);
                }
                if let Some(started) = &this.started {
                    let error = panicked(&started.generation, &panic);
                    Self::finish(this.tenure, this.started, Err(error));
                }
            }
        }
        Poll::Ready(())
    }
}

impl<S> Future for Worker<S>
where
    S: Service<Batch<Message>> + Clone,
    S::Response: IntoAnswer<Batch<Message>>,
    S::Error: Into<BoxError>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut reached = None;
        for _ in 0..BUDGET {
            // In this order: what has ended makes room for what is due, and what is due goes before what still comes.
            self.as_mut().poll_running(cx);
            let mut this = self.as_mut().project();
            this.watches.retain_mut(|watch| watch.poll(cx).is_pending());
            let now = reached.map_or_else(Instant::now, |reached| Instant::now().max(reached));
            let watches = &this.watches;
            let is_watched = |generation: &_| watches.iter().any(|watch| watch.is_of(generation));
            match this.tenure.owners.next(this.tenure.owner, now, is_watched, cx) {
                Next::GiveBack(void) => void.into_iter().for_each(super::gathering::Gathering::release),
                Next::Watch(generation) => this.watches.push(Watch::new(generation)),
                Next::Start => {
                    if self.as_mut().start(now, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Next::Wait(until) => {
                    if this.started.is_none() && std::mem::take(this.asked) {
                        // It may have reserved something, which must not be kept from others.
                        discard(this.service);
                    }
                    let Some(until) = until else { return Poll::Pending };
                    match this.timer.as_mut().as_pin_mut() {
                        Some(timer) if timer.deadline() == until => {}
                        Some(timer) => timer.reset(until),
                        None => this.timer.set(Some(sleep_until(until))),
                    }
                    match this.timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
                        Some(Poll::Ready(())) => reached = Some(until),
                        _ => return Poll::Pending,
                    }
                }
                Next::End => {
                    this.tenure.over = true;
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[pinned_drop]
impl<S> PinnedDrop for Worker<S>
where
    S: Service<Batch<Message>>,
{
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        if let Some(started) = this.started.take() {
            // As above: first the handler, then its members.
            empty(&mut this.running, &started.generation);
            this.tenure.owners.finish(this.tenure.owner, &started);
            started.answer(|| Err(Closed.into()));
        }
    }
}

/// Gives each member its answer.
fn tell(started: Started, answer: Result<Outcomes, BoxError>) {
    let members = started.taken.len();
    match answer {
        Ok(Outcomes::Each(results)) if results.len() == members => {
            started.seats.answer(started.taken.iter().copied().zip(results));
        }
        Ok(Outcomes::Each(results)) => {
            let wrong = WrongLength { members, results: results.len() };
            started.answer(|| Err(wrong.into()));
        }
        Ok(Outcomes::All(outcome)) => started.answer(|| Ok(outcome.clone())),
        Err(error) => {
            let error = SharedError::from(error);
            started.answer(|| Err(error.clone().into()));
        }
    }
}

/// Drops the future. If that panics, everybody hears of it, and nothing else happens.
fn empty<F>(running: &mut Pin<&mut Option<F>>, generation: &Generation) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| running.set(None))) {
        drop(panicked(generation, &panic));
    }
}

/// Drops the service, as above.
fn discard<S>(service: &mut Option<S>) {
    if let Some(service) = service.take()
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(service)))
    {
        tracing::error!(error = %Panicked::new(&panic), "a service panicked when it was dropped");
    }
}

/// The panic as an error, after everybody has heard of it.
#[cold]
fn panicked(generation: &Generation, panic: &Panic) -> BoxError {
    let (error, origin) = (Panicked::new(panic), generation.origin());
    tracing::error!(source = origin.name(), %error, "a service panicked while it handled a batch");
    // Nobody knows which of the members it was.
    origin.report(&Event::Panicked { message: None });
    error.into()
}
