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
    #[inline(always)]
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

    #[inline(always)]
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

#[cfg(all(test, not(tower_mq_loom)))]
mod tests {
    use tokio_test::{
        assert_pending, assert_ready,
        task::{Spawn, spawn},
    };

    use super::*;

    struct Handle<'a>(&'a Capacity, Waiter, Spawn<()>);

    impl<'a> Handle<'a> {
        fn of(capacity: &'a Capacity) -> Self {
            Self(capacity, Waiter::default(), spawn(()))
        }

        fn poll(&mut self) -> Poll<Result<u32, SharedError>> {
            let Self(capacity, waiter, task) = self;
            task.enter(|cx, _| capacity.poll_take(waiter, cx))
        }

        fn is_woken(&self) -> bool {
            self.2.is_woken()
        }
    }

    #[test]
    fn there_are_as_many_places_as_were_asked_for() {
        let capacity = Capacity::new(2);
        let mut handle = Handle::of(&capacity);
        let first = assert_ready!(handle.poll()).expect("a place");
        let second = assert_ready!(handle.poll()).expect("a place");
        assert_ne!(first, second);
        assert_pending!(handle.poll());
        capacity.give_back(first);
        assert!(handle.is_woken());
        assert_eq!(assert_ready!(handle.poll()).expect("a place"), first);
    }

    #[test]
    fn those_who_wait_are_woken_in_their_order_one_for_each_place() {
        let capacity = Capacity::new(1);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Handle::of(&capacity));
        assert_ready!(a.poll()).expect("a place");
        assert_pending!(b.poll());
        assert_pending!(c.poll());
        assert_pending!(b.poll());
        capacity.give_back(0);
        assert!(b.is_woken() && !c.is_woken());
    }

    #[test]
    fn one_who_was_not_woken_and_gets_a_place_eats_no_wake_up() {
        let capacity = Capacity::new(1);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Handle::of(&capacity));
        assert_ready!(a.poll()).expect("a place");
        assert_pending!(b.poll());
        assert_pending!(c.poll());
        capacity.give_back(0);
        assert!(b.is_woken() && !c.is_woken());
        // `c` looks for another reason, and is faster.
        assert_ready!(c.poll()).expect("a place");
        assert_pending!(b.poll());
        capacity.give_back(0);
        assert!(b.is_woken(), "`c` waits no more, so `b` is woken");
        assert!(!c.is_woken());
    }

    #[test]
    fn one_who_was_woken_and_goes_away_passes_it_on() {
        let capacity = Capacity::new(1);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Handle::of(&capacity));
        assert_ready!(a.poll()).expect("a place");
        assert_pending!(b.poll());
        assert_pending!(c.poll());
        capacity.give_back(0);
        assert!(b.is_woken() && !c.is_woken());
        capacity.leave(&mut b.1);
        assert!(c.is_woken());
        assert_ready!(c.poll()).expect("a place");
    }

    #[test]
    fn one_who_goes_away_unwoken_is_forgotten() {
        let capacity = Capacity::new(1);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Handle::of(&capacity));
        assert_ready!(a.poll()).expect("a place");
        assert_pending!(b.poll());
        assert_pending!(c.poll());
        capacity.leave(&mut b.1);
        capacity.give_back(0);
        assert!(c.is_woken());
    }

    #[test]
    fn a_failure_reaches_those_who_wait_and_those_who_come() {
        let capacity = Capacity::new(1);
        let [mut a, mut b] = [(); 2].map(|()| Handle::of(&capacity));
        assert_ready!(a.poll()).expect("a place");
        assert_pending!(b.poll());
        capacity.fail(&SharedError::from(tower_mq_delivery::BoxError::from("worn out")));
        assert!(b.is_woken());
        assert_eq!(assert_ready!(b.poll()).expect_err("no place").to_string(), "worn out");
        capacity.give_back(0);
        assert!(assert_ready!(a.poll()).is_err());
    }
}

#[cfg(all(test, tower_mq_loom))]
mod models {
    use std::{future::poll_fn, sync::Arc};

    use loom::{future::block_on, thread};

    use super::*;

    /// `block_on` hangs, and loom says so, if a wake-up is lost.
    #[test]
    fn nobody_waits_for_a_place_that_is_free() {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(2);
        bounded.check(|| {
            let capacity = Arc::new(Capacity::new(1));
            let takes = |capacity: Arc<Capacity>| {
                move || {
                    let mut waiter = Waiter::default();
                    let place = block_on(poll_fn(|cx| capacity.poll_take(&mut waiter, cx)));
                    capacity.give_back(place.expect("a place"));
                }
            };
            let threads: Vec<_> = (0..2).map(|_| thread::spawn(takes(capacity.clone()))).collect();
            takes(capacity)();
            threads.into_iter().for_each(|thread| thread.join().expect("a place was found"));
        });
    }

    #[test]
    fn one_who_goes_away_leaves_his_wake_up_to_the_next() {
        loom::model(|| {
            let capacity = Arc::new(Capacity::new(1));
            let place =
                block_on(poll_fn(|cx| capacity.poll_take(&mut Waiter::default(), cx))).expect("a place");
            let leaves = {
                let capacity = capacity.clone();
                thread::spawn(move || {
                    let mut waiter = Waiter::default();
                    let mut cx = Context::from_waker(Waker::noop());
                    let polled = capacity.poll_take(&mut waiter, &mut cx);
                    capacity.leave(&mut waiter);
                    if let Poll::Ready(Ok(place)) = polled {
                        capacity.give_back(place);
                    }
                })
            };
            let gives = {
                let capacity = capacity.clone();
                thread::spawn(move || capacity.give_back(place))
            };
            let mut waiter = Waiter::default();
            block_on(poll_fn(|cx| capacity.poll_take(&mut waiter, cx))).expect("a place");
            leaves.join().expect("leaves");
            gives.join().expect("gives");
        });
    }
}
