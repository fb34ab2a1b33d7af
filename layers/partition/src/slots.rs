//! Answers on their way back: a oneshot channel for each place, used again and again.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tower_mq_delivery::{BoxError, Finished, Panic, Tag};

use crate::{
    Closed,
    capacity::Capacity,
    sync::{AtomicBool, Mutex, Ordering},
};

/// What became of a delivery; `Err`: the service panicked.
pub(crate) type Answer<A> = Result<Result<A, BoxError>, Panic>;

/// A table of slots, one for each place.
///
/// A place is taken, split into a [`Caller`] and a [`Runner`], and free again when both are done with it: when the
/// caller has the answer, or the runner has dropped what nobody wants. Which of the two frees it is decided under the
/// slot's lock, so a place needs no generation.
pub(crate) struct Slots<A> {
    slots: Box<[Slot<A>]>,
    capacity: Capacity,
}

struct Slot<A> {
    /// Written under the lock, read without it.
    cancelled: AtomicBool,
    state: Mutex<State<A>>,
}

struct State<A> {
    answer: Option<Answer<A>>,
    caller: Option<Waker>,
    /// Set only once the handler was pending: one that is ready at once never pays for it.
    runner: Option<Waker>,
}

impl<A> Slots<A> {
    pub(crate) fn new(places: u32) -> Self {
        let slot = |_| Slot {
            cancelled: AtomicBool::new(false),
            state: Mutex::new(State { answer: None, caller: None, runner: None }),
        };
        Self { slots: (0..places).map(slot).collect(), capacity: Capacity::new(places) }
    }

    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The two halves of a place that was taken.
    #[inline]
    pub(crate) fn split(self: &Arc<Self>, place: u32) -> (Caller<A>, Runner<A>) {
        (
            Caller { slots: self.clone(), place, done: false },
            Runner { slots: self.clone(), place, done: false },
        )
    }

    #[inline]
    fn slot(&self, place: u32) -> &Slot<A> {
        &self.slots[place as usize]
    }
}

/// Waits for the answer. Dropped, it cancels.
pub(crate) struct Caller<A> {
    slots: Arc<Slots<A>>,
    place: u32,
    done: bool,
}

impl<A> Caller<A> {
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer<A>> {
        assert!(!self.done, "the response of a partition was polled after it was ready");
        let mut state = self.slots.slot(self.place).state.lock();
        if let Some(answer) = state.answer.take() {
            drop(state);
            self.done = true;
            self.slots.capacity.give_back(self.place);
            return Poll::Ready(answer);
        }
        let replaced = match &state.caller {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => state.caller.replace(cx.waker().clone()),
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl<A> Drop for Caller<A> {
    #[inline]
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let slot = self.slots.slot(self.place);
        let mut state = slot.state.lock();
        let answer = state.answer.take();
        if answer.is_none() {
            slot.cancelled.store(true, Ordering::Release);
        }
        let (caller, runner) = (state.caller.take(), state.runner.take());
        drop(state);
        drop(caller);
        if answer.is_some() {
            drop(answer);
            self.slots.capacity.give_back(self.place);
        } else if let Some(runner) = runner {
            runner.wake();
        }
    }
}

/// Answers. Dropped without an answer, it answers [`Closed`]: no caller waits for a lane that is gone.
pub(crate) struct Runner<A> {
    slots: Arc<Slots<A>>,
    place: u32,
    done: bool,
}

impl<A> Runner<A> {
    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    /// What the loop reports.
    #[inline]
    pub(crate) fn finish<E: Into<BoxError>>(self, finished: Finished<Result<A, E>>) {
        match finished {
            Finished::Answered(Ok(answer)) => self.complete(Ok(Ok(answer))),
            Finished::Answered(Err(error)) => self.fail(error),
            Finished::Panicked(panic) => self.complete(Err(panic)),
            Finished::Cancelled => drop(self),
        }
    }

    pub(crate) fn fail(self, error: impl Into<BoxError>) {
        self.complete(Ok(Err(error.into())));
    }

    #[inline]
    pub(crate) fn complete(mut self, answer: Answer<A>) {
        self.done = true;
        self.answer(answer);
    }

    #[inline]
    fn answer(&self, answer: Answer<A>) {
        let slot = self.slots.slot(self.place);
        let mut state = slot.state.lock();
        let runner = state.runner.take();
        if slot.cancelled.load(Ordering::Relaxed) {
            slot.cancelled.store(false, Ordering::Relaxed);
            drop(state);
            drop((runner, answer));
            self.slots.capacity.give_back(self.place);
            return;
        }
        state.answer = Some(answer);
        let caller = state.caller.take();
        drop(state);
        drop(runner);
        if let Some(caller) = caller {
            caller.wake();
        }
    }
}

impl<A> Drop for Runner<A> {
    #[inline]
    fn drop(&mut self) {
        if !self.done {
            self.answer(Ok(Err(Closed.into())));
        }
    }
}

impl<A> Tag for Runner<A> {
    #[inline]
    fn is_cancelled(&self) -> bool {
        self.slots.slot(self.place).cancelled.load(Ordering::Acquire)
    }

    fn watch(&self, waker: &Waker) -> bool {
        let slot = self.slots.slot(self.place);
        let mut state = slot.state.lock();
        let wanted = !slot.cancelled.load(Ordering::Relaxed);
        let replaced = match &state.runner {
            _ if !wanted => None,
            Some(other) if other.will_wake(waker) => None,
            _ => state.runner.replace(waker.clone()),
        };
        drop(state);
        drop(replaced);
        wanted
    }
}
