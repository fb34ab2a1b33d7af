//! Places: the bound on what a partition holds.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use tower_mq_delivery::SharedError;

use crate::sync::Mutex;

/// A list of free places. A place is a number, so that who has it has a seat in every table of this size.
pub(crate) struct Capacity {
    state: Mutex<State>,
}

struct State {
    free: Vec<u32>,
    /// In the order in which they came.
    waiting: VecDeque<(u64, Waker)>,
    /// Names the next one who waits.
    next: u64,
    failed: Option<SharedError>,
}

/// One who takes places, and may be waiting for one.
#[derive(Default)]
pub(crate) struct Waiter(Option<u64>);

impl Capacity {
    pub(crate) fn new(places: u32) -> Self {
        let free = (0..places).rev().collect();
        Self { state: Mutex::new(State { free, waiting: VecDeque::new(), next: 0, failed: None }) }
    }

    /// Takes a place. An error is final.
    #[inline]
    pub(crate) fn poll_take(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u32, SharedError>> {
        let mut state = self.state.lock();
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(error.clone()));
        }
        let Some(place) = state.free.pop() else {
            let replaced = state.wait(waiter, cx);
            drop(state);
            drop(replaced);
            return Poll::Pending;
        };
        drop(state);
        if waiter.0.is_some() {
            self.leave(waiter);
        }
        Poll::Ready(Ok(place))
    }

    #[inline]
    pub(crate) fn give_back(&self, place: u32) {
        let mut state = self.state.lock();
        state.free.push(place);
        let next = state.waiting.pop_front();
        drop(state);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    /// The waiter has its place, or wants none any more. If it was not woken, its entry must not eat a wake-up that is
    /// meant for another; if it was woken and leaves a place behind, the next one must hear of it.
    #[cold]
    pub(crate) fn leave(&self, waiter: &mut Waiter) {
        let Some(name) = waiter.0.take() else { return };
        let mut state = self.state.lock();
        let entry = state.waiting.iter().position(|(other, _)| *other == name);
        let mine = entry.and_then(|at| state.waiting.remove(at));
        let next = if state.free.is_empty() { None } else { state.waiting.pop_front() };
        drop(state);
        drop(mine);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    /// From now on there are no places, and those who wait are told why.
    pub(crate) fn fail(&self, error: &SharedError) {
        let mut state = self.state.lock();
        state.failed.get_or_insert_with(|| error.clone());
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl State {
    /// Registers the waiter. Gives back a waker to be dropped without the lock: that may run anything.
    #[cold]
    fn wait(&mut self, waiter: &mut Waiter, cx: &mut Context<'_>) -> Option<Waker> {
        let name = *waiter.0.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        match self.waiting.iter_mut().find(|(other, _)| *other == name) {
            Some((_, waker)) if waker.will_wake(cx.waker()) => None,
            Some((_, waker)) => Some(std::mem::replace(waker, cx.waker().clone())),
            None => {
                self.waiting.push_back((name, cx.waker().clone()));
                None
            }
        }
    }
}
