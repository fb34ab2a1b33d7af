//! The one loop: what a driver does with a source, and a lane with its queue.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_buffered::FuturesUnordered;
use futures_core::Stream;
use tower_service::Service;

use crate::{CarryOne, Panic, Turns};

/// Rounds in one poll before the loop gives way. A round costs about as much as a wake-up saves; beyond a hundred
/// there is little to gain.
const BUDGET: u32 = 128;

/// Where the loop takes requests from, and where it puts what became of them.
pub trait Intake<R, O> {
    /// Goes with a request through the loop.
    type Tag: Tag;

    /// Whether the intake can keep back the keys of parked deliveries, so that a worker may serve others meanwhile.
    const PARKS: bool = false;

    /// The next request; `None` when there will be no more.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(R, Self::Tag)>>;

    /// The request with this tag is done with.
    fn done(&mut self, tag: Self::Tag, finished: Finished<O>);

    /// The loop is about to give way: hand on what was kept back.
    fn rest(&mut self) {}
}

/// Knows whether anybody still wants the answer.
pub trait Tag {
    /// Nobody wants the answer any more.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Have this waker woken when nobody wants the answer any more; `false`: that is so already.
    fn watch(&self, _waker: &Waker) -> bool {
        true
    }
}

impl Tag for () {}

/// What became of a request.
#[derive(Debug)]
pub enum Finished<O> {
    /// The service answered.
    Answered(O),
    /// The service panicked.
    Panicked(Panic),
    /// Nobody wanted the answer, so the future was dropped.
    Cancelled,
}

/// Why the loop stopped before its intake ended.
#[derive(Debug)]
pub enum Stopped<E> {
    /// The service will never be ready again.
    Failed(E),
    /// The service panicked in `poll_ready` or `call`: its state may be broken. The request at hand has been told.
    /// [`Drive::replace`] puts another instance in its place.
    Broken,
}

/// Runs a service over an intake: one request at a time, until a turn is passed.
///
/// - A request is taken first, then readiness is asked for, then the service is called: a reservation is never held
///   while there is nothing to do. A request that nobody wants any more is not called.
/// - The next request is taken when the turn of the last one was passed, or its response has completed.
/// - Nothing is allocated per request: futures live in boxes that are used again.
///
/// # Panics
/// A panic of the service is caught and given to [`Intake::done`].
///
/// # Cancel safety
/// Dropping it drops the request in hand and all futures that run.
pub struct Drive<I, S, R>
where
    S: Service<R>,
    I: Intake<R, Result<S::Response, S::Error>>,
{
    // What runs stands before the intake: it is dropped first, so an intake that is dropped knows that nothing runs.
    /// Taken, but the service was not ready.
    held: Option<(R, I::Tag)>,
    /// The future whose turn was not passed. Polled here, without a waker of its own.
    head: Option<(Slot<S::Future>, I::Tag)>,
    /// Passed inside `call` and not polled yet, so they can still move. They are first polled when the loop comes
    /// round again: by then those they wait for have mostly run.
    fresh: VecDeque<(S::Future, I::Tag)>,
    running: FuturesUnordered<Running<S::Future, I::Tag>>,
    /// Of those that run, how many did not pass their turn: they were parked.
    parked: u64,
    spare: Vec<Slot<S::Future>>,
    service: S,
    intake: I,
    turns: Arc<Turns>,
    sequence: u64,
    ended: bool,
}

type Slot<F> = Pin<Box<Option<F>>>;

impl<I, S, R> Drive<I, S, R>
where
    S: Service<R>,
    R: CarryOne,
    I: Intake<R, Result<S::Response, S::Error>>,
{
    /// A loop at rest.
    pub fn new(intake: I, service: S) -> Self {
        Self {
            held: None,
            head: None,
            fresh: VecDeque::new(),
            running: FuturesUnordered::new(),
            parked: 0,
            spare: Vec::new(),
            service,
            intake,
            turns: Turns::new(),
            sequence: 0,
            ended: false,
        }
    }

    /// The intake.
    pub fn intake(&mut self) -> &mut I {
        &mut self.intake
    }

    /// Puts another instance of the service in the place of a broken one.
    pub fn replace(&mut self, service: S) {
        self.service = service;
    }

    /// Takes nothing more; what runs is finished by further polls. Gives back the request in hand.
    pub fn stop(&mut self) -> Option<(R, I::Tag)> {
        self.ended = true;
        self.held.take()
    }

    /// Takes nothing more, and drops what was taken and is not done with.
    pub fn abandon(&mut self) {
        self.ended = true;
        self.held = None;
        self.head = None;
        self.fresh.clear();
        self.running = FuturesUnordered::new();
        self.parked = 0;
    }

    /// Ready when the intake has ended and all that was taken is done with, or when the service stopped. Then, after
    /// [`replace`](Self::replace) or [`stop`](Self::stop), poll it again at once: what runs was not polled to its end.
    #[inline]
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stopped<S::Error>>> {
        self.poll_fresh(cx);
        self.poll_running(cx);
        let mut moved = false;
        let mut rounds = BUDGET;
        let rest = loop {
            if !self.poll_head(cx, &mut moved) {
                break None;
            }
            if rounds == 0 {
                cx.waker().wake_by_ref();
                break None;
            }
            rounds -= 1;
            match self.take(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) | Poll::Pending => break None,
                Poll::Ready(Err(stopped)) => break Some(stopped),
            }
        };
        self.intake.rest();
        if let Some(stopped) = rest {
            return Poll::Ready(Err(stopped));
        }
        if moved || !self.fresh.is_empty() {
            cx.waker().wake_by_ref();
        } else if self.ended && self.head.is_none() && self.running.is_empty() && self.held.is_none() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Takes a request and calls the service. `false`: there will be no more.
    #[inline]
    fn take(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Stopped<S::Error>>> {
        let (mut request, tag) = match self.held.take() {
            Some(held) => held,
            None if self.ended => return Poll::Ready(Ok(false)),
            None => match self.intake.poll_next(cx) {
                Poll::Ready(Some(next)) => next,
                Poll::Ready(None) => {
                    self.ended = true;
                    return Poll::Ready(Ok(false));
                }
                Poll::Pending => return Poll::Pending,
            },
        };
        if tag.is_cancelled() {
            drop(request);
            self.intake.done(tag, Finished::Cancelled);
            return Poll::Ready(Ok(true));
        }
        match catch_unwind(AssertUnwindSafe(|| self.service.poll_ready(cx))) {
            Ok(Poll::Ready(Ok(()))) => {}
            Ok(Poll::Ready(Err(error))) => {
                self.held = Some((request, tag));
                return Poll::Ready(Err(Stopped::Failed(error)));
            }
            Ok(Poll::Pending) if tag.watch(cx.waker()) => {
                self.held = Some((request, tag));
                return Poll::Pending;
            }
            Ok(Poll::Pending) => {
                drop(request);
                self.intake.done(tag, Finished::Cancelled);
                return Poll::Ready(Ok(true));
            }
            Err(panic) => {
                drop(request);
                self.intake.done(tag, Finished::Panicked(panic));
                return Poll::Ready(Err(Stopped::Broken));
            }
        }
        self.sequence += 1;
        let _theirs = request.message_mut().set_turn(self.turns.turn(self.sequence));
        match catch_unwind(AssertUnwindSafe(|| self.service.call(request))) {
            Ok(future) if self.turns.is_passed(self.sequence) => self.fresh.push_back((future, tag)),
            Ok(future) => {
                let mut slot = self.spare.pop().unwrap_or_else(|| Box::pin(None));
                slot.set(Some(future));
                self.head = Some((slot, tag));
            }
            Err(panic) => {
                self.intake.done(tag, Finished::Panicked(panic));
                return Poll::Ready(Err(Stopped::Broken));
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Polls the future whose turn was not passed; `false`: it still holds up the queue.
    #[inline]
    fn poll_head(&mut self, cx: &mut Context<'_>, moved: &mut bool) -> bool {
        let Some((slot, tag)) = &mut self.head else { return self.others_may_run(cx) };
        let finished = poll_slot(slot, tag, cx);
        if let Poll::Ready(finished) = finished {
            if let Some((mut slot, tag)) = self.head.take() {
                slot.set(None);
                self.spare.push(slot);
                self.intake.done(tag, finished);
            }
            return self.others_may_run(cx);
        }
        let awake = if I::PARKS { self.parked } else { u64::MAX };
        if !self.turns.wait(self.sequence, awake, cx) {
            return false;
        }
        let holds = !self.turns.is_passed(self.sequence);
        if let Some((slot, tag)) = self.head.take() {
            self.parked += u64::from(holds);
            self.running.push(Running { slot: Some(slot), tag: Some(tag), holds });
            *moved = true;
        }
        true
    }

    /// Those that were parked and woke up have the right of way.
    #[inline]
    fn others_may_run(&self, cx: &mut Context<'_>) -> bool {
        self.parked == 0 || self.turns.wait(u64::MAX >> 1, self.parked - 1, cx)
    }

    fn poll_fresh(&mut self, cx: &mut Context<'_>) {
        if self.fresh.is_empty() {
            return;
        }
        let mut slot = self.spare.pop().unwrap_or_else(|| Box::pin(None));
        while let Some((future, tag)) = self.fresh.pop_front() {
            slot.set(Some(future));
            match poll_slot(&mut slot, &tag, cx) {
                Poll::Ready(finished) => {
                    slot.set(None);
                    self.intake.done(tag, finished);
                }
                Poll::Pending => {
                    self.running.push(Running { slot: Some(slot), tag: Some(tag), holds: false });
                    slot = self.spare.pop().unwrap_or_else(|| Box::pin(None));
                }
            }
        }
        self.spare.push(slot);
    }

    #[inline]
    fn poll_running(&mut self, cx: &mut Context<'_>) {
        if self.running.is_empty() {
            return;
        }
        while let Poll::Ready(Some((slot, tag, holds, finished))) = Pin::new(&mut self.running).poll_next(cx)
        {
            self.parked -= u64::from(holds);
            self.spare.push(slot);
            self.intake.done(tag, finished);
        }
    }
}

/// Polls the future in the slot; leaves it there, done or not.
#[inline]
fn poll_slot<F: Future, T: Tag>(
    slot: &mut Slot<F>,
    tag: &T,
    cx: &mut Context<'_>,
) -> Poll<Finished<F::Output>> {
    if tag.is_cancelled() {
        return Poll::Ready(Finished::Cancelled);
    }
    let Some(future) = slot.as_mut().as_pin_mut() else { return Poll::Ready(Finished::Cancelled) };
    match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(Poll::Ready(output)) => Poll::Ready(Finished::Answered(output)),
        Ok(Poll::Pending) if tag.watch(cx.waker()) => Poll::Pending,
        Ok(Poll::Pending) => Poll::Ready(Finished::Cancelled),
        Err(panic) => Poll::Ready(Finished::Panicked(panic)),
    }
}

/// A future in its box, so that one that was polled in the head can move here, and the box can be used again.
struct Running<F, T> {
    slot: Option<Slot<F>>,
    tag: Option<T>,
    holds: bool,
}

impl<F, T> Unpin for Running<F, T> {}

impl<F: Future, T: Tag> Future for Running<F, T> {
    type Output = (Slot<F>, T, bool, Finished<F::Output>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (Some(slot), Some(tag)) = (&mut this.slot, &this.tag) else { return Poll::Pending };
        let Poll::Ready(finished) = poll_slot(slot, tag, cx) else { return Poll::Pending };
        match (this.slot.take(), this.tag.take()) {
            (Some(mut slot), Some(tag)) => {
                slot.set(None);
                Poll::Ready((slot, tag, this.holds, finished))
            }
            _ => Poll::Pending,
        }
    }
}

impl<I, S, R> fmt::Debug for Drive<I, S, R>
where
    S: Service<R>,
    I: Intake<R, Result<S::Response, S::Error>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive")
            .field("taken", &self.sequence)
            .field("running", &self.running.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tower_mq_loom)))]
mod tests;
