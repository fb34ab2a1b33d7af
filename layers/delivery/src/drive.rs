//! The one loop: what a driver does with a source, and a lane with its queue.

mod running;

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use futures_buffered::FuturesUnordered;
use futures_core::Stream;
use tower_service::Service;
use tracing::span::EnteredSpan;

use self::running::{Running, Slot, cancel, empty, log, poll_slot};
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

    /// The next request; `None` when there will be no more, and it is not asked again.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(R, Self::Tag)>>;

    /// The request with this tag is done with.
    fn done(&mut self, tag: Self::Tag, finished: Finished<O>);

    /// The loop is about to give way: hand on what was kept back.
    fn rest(&mut self) {}
}

/// A span that is entered until this is dropped. In a box: there is seldom one, and then this is nothing to drop.
pub type InSpan = Option<Box<EnteredSpan>>;

/// Knows on whose behalf a request is handled, and whether anybody still wants the answer.
pub trait Tag {
    /// Enters the span that the request was called in. It is entered while the service works for this request, or its
    /// future is dropped.
    #[inline]
    fn enter(&self) -> InSpan {
        None
    }

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
    /// Another instance is needed; [`Drive::replace`] puts it in. Either the service panicked in `poll_ready` or `call`,
    /// so its state may be broken, and the request at hand has been told. Or it was asked for readiness for a request
    /// that was cancelled: it may hold a reservation that others wait for, and a clone holds none.
    Broken,
    /// The service is as good as it was, but holds a reservation for a request that was [declined](crate::Turn::decline).
    /// Who has a clone may [`replace`](Drive::replace) it.
    Declined,
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
    /// The future whose turn was not passed, and its tag. Polled here, without a waker of its own.
    head: Slot<S::Future>,
    holds: Option<I::Tag>,
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

/// How far a request got at once.
enum Step<E> {
    /// It was answered, or its turn was passed.
    Done,
    Holds,
    NotReady,
    Failed(E),
}

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
            head: Box::pin(None),
            holds: None,
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
        self.holds = None;
        log(empty(&mut self.head));
        while let Some(fresh) = self.fresh.pop_front() {
            log(catch_unwind(AssertUnwindSafe(|| drop(fresh))));
        }
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
            match self.take(cx, &mut moved) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) | Poll::Pending => break None,
                Poll::Ready(Err(stopped)) => break Some(stopped),
            }
        };
        self.intake.rest();
        if let Some(stopped) = rest {
            return Poll::Ready(Err(stopped));
        }
        if self.turns.take_declined() {
            return Poll::Ready(Err(Stopped::Declined));
        }
        if moved || !self.fresh.is_empty() {
            cx.waker().wake_by_ref();
        } else if self.ended && self.holds.is_none() && self.running.is_empty() && self.held.is_none() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Takes a request, calls the service, and polls its future if it holds up the queue. `false`: nothing more may
    /// be taken now.
    #[inline(always)]
    fn take(&mut self, cx: &mut Context<'_>, moved: &mut bool) -> Poll<Result<bool, Stopped<S::Error>>> {
        let asked = self.held.is_some();
        if !asked && !ready!(self.next(cx)) {
            return Poll::Ready(Ok(false));
        }
        let Some((_, tag)) = &self.held else { return Poll::Pending };
        if tag.is_cancelled() {
            self.let_go(Finished::Cancelled);
            // As below.
            return Poll::Ready(if asked { Err(Stopped::Broken) } else { Ok(true) });
        }
        let _entered = tag.enter();
        let (mut taken, mut called) = (None, false);
        // One net for all of it: it is not free, and they are seldom apart.
        let step = catch_unwind(AssertUnwindSafe(|| {
            match self.service.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Step::Failed(error),
                Poll::Pending => return Step::NotReady,
            }
            let Some((mut request, tag)) = self.held.take() else { return Step::NotReady };
            taken = Some(tag);
            self.sequence += 1;
            let _theirs = request.message_mut().set_turn(self.turns.turn(self.sequence));
            let future = self.service.call(request);
            called = true;
            if self.turns.is_passed(self.sequence) {
                if let Some(tag) = taken.take() {
                    self.fresh.push_back((future, tag));
                }
                return Step::Done;
            }
            self.head.set(Some(future));
            let polled = self.head.as_mut().as_pin_mut().map(|future| future.poll(cx));
            let Some(Poll::Ready(output)) = polled else { return Step::Holds };
            self.head.set(None);
            if let Some(tag) = taken.take() {
                self.intake.done(tag, Finished::Answered(output));
            }
            Step::Done
        }));
        if let Ok(Step::Done) = step {
            return Poll::Ready(Ok(true));
        }
        self.not_done(step, taken, called, cx, moved)
    }

    /// What is left to do for a request that was neither answered nor passed.
    fn not_done(
        &mut self,
        step: Result<Step<S::Error>, Panic>,
        taken: Option<I::Tag>,
        called: bool,
        cx: &mut Context<'_>,
        moved: &mut bool,
    ) -> Poll<Result<bool, Stopped<S::Error>>> {
        match (step, taken) {
            (Ok(Step::Failed(error)), _) => return Poll::Ready(Err(Stopped::Failed(error))),
            (Ok(_), Some(tag)) => {
                if tag.watch(cx.waker()) {
                    self.holds = Some(tag);
                    return Poll::Ready(Ok(self.give_way(cx, moved)));
                }
                let finished = cancel(&mut self.head);
                self.intake.done(tag, finished);
            }
            (Ok(_), None) => {
                if self.held.as_ref().is_some_and(|(_, tag)| tag.watch(cx.waker())) {
                    return Poll::Pending;
                }
                self.let_go(Finished::Cancelled);
                // The service may stand in line for a reservation, or have one. Idle, it would keep it from others for
                // good.
                return Poll::Ready(Err(Stopped::Broken));
            }
            (Err(panic), taken) => {
                log(empty(&mut self.head));
                match taken {
                    Some(tag) => self.intake.done(tag, Finished::Panicked(panic)),
                    None => self.let_go(Finished::Panicked(panic)),
                }
                if !called {
                    return Poll::Ready(Err(Stopped::Broken));
                }
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Takes the next request in hand. `false`: there will be none.
    #[inline(always)]
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.ended {
            return Poll::Ready(false);
        }
        match self.intake.poll_next(cx) {
            Poll::Ready(Some(next)) => {
                self.held = Some(next);
                return Poll::Ready(true);
            }
            Poll::Ready(None) => self.ended = true,
            Poll::Pending => {}
        }
        self.turns.idle();
        match self.ended {
            true => Poll::Ready(false),
            false => Poll::Pending,
        }
    }

    /// Drops the request in hand, which was not given to the service, and says why.
    #[cold]
    fn let_go(&mut self, why: Finished<Result<S::Response, S::Error>>) {
        if let Some((request, tag)) = self.held.take() {
            drop(request);
            self.intake.done(tag, why);
        }
    }

    /// Polls the future that holds up the queue; `false`: it still does.
    #[inline(always)]
    fn poll_head(&mut self, cx: &mut Context<'_>, moved: &mut bool) -> bool {
        let Some(tag) = &self.holds else { return self.others_may_run(cx) };
        let Poll::Ready(finished) = poll_slot(&mut self.head, tag, cx) else {
            return self.give_way(cx, moved);
        };
        if let Some(tag) = self.holds.take() {
            self.intake.done(tag, finished);
        }
        self.others_may_run(cx)
    }

    /// The future that holds up the queue is pending. If its turn was passed, or it sleeps, it joins those that run;
    /// `false`: it waits where it is.
    fn give_way(&mut self, cx: &mut Context<'_>, moved: &mut bool) -> bool {
        let awake = if I::PARKS { self.parked } else { u64::MAX };
        if !self.turns.wait(self.sequence, awake, cx) {
            return false;
        }
        let holds = !self.turns.is_passed(self.sequence);
        let spare = self.spare.pop().unwrap_or_else(|| Box::pin(None));
        let slot = std::mem::replace(&mut self.head, spare);
        self.parked += u64::from(holds);
        self.running.push(Running { slot: Some(slot), tag: self.holds.take(), holds });
        *moved = true;
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
                Poll::Ready(finished) => self.intake.done(tag, finished),
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
