//! Answers on their way back: a oneshot channel for each place, used again and again.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tower_mq_delivery::{BoxError, Finished, InSpan, Panic, Tag};

use crate::{
    Closed,
    capacity::Capacity,
    spans::Spans,
    sync::{AtomicBool, Mutex, Ordering},
};

/// What became of a delivery; `Err`: the service panicked.
pub(crate) type Answer<A> = Result<Result<A, BoxError>, Panic>;

/// A delivery in a queue, and the way back for its answer.
pub(crate) type Job<R, A> = (R, Runner<A>);

/// A table of slots, one for each place.
///
/// A place is taken, split into a [`Caller`] and a [`Runner`], and free again when both are done with it: when the
/// caller has the answer, or the runner has dropped what nobody wants. Which of the two frees it is decided under the
/// slot's lock, so a place needs no generation.
pub(crate) struct Slots<A> {
    slots: Box<[Slot<A>]>,
    capacity: Capacity,
    spans: Spans,
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

/// The place of one who is done with it. Not a flag beside the place: the halves are moved often, and two words move in
/// one step.
const NONE: u32 = u32::MAX;

impl<A> Slots<A> {
    pub(crate) fn new(places: u32) -> Self {
        let slot = |_| Slot {
            cancelled: AtomicBool::new(false),
            state: Mutex::new(State { answer: None, caller: None, runner: None }),
        };
        Self {
            slots: (0..places).map(slot).collect(),
            capacity: Capacity::new(places),
            spans: Spans::new(places),
        }
    }

    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The two halves of a place that was taken. The runner works in the span that is entered now.
    #[inline]
    pub(crate) fn split(self: &Arc<Self>, place: u32) -> (Caller<A>, Runner<A>) {
        self.spans.keep(place);
        (Caller { slots: self.clone(), place }, Runner { slots: self.clone(), place })
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
}

impl<A> Caller<A> {
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer<A>> {
        assert!(self.place != NONE, "the response of a partition was polled after it was ready");
        let mut state = self.slots.slot(self.place).state.lock();
        if let Some(answer) = state.answer.take() {
            drop(state);
            self.slots.capacity.give_back(mem::replace(&mut self.place, NONE));
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
    #[inline(always)]
    fn drop(&mut self) {
        if self.place != NONE {
            self.cancel();
        }
    }
}

impl<A> Caller<A> {
    #[inline(never)]
    fn cancel(&self) {
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

    #[inline(always)]
    pub(crate) fn complete(mut self, answer: Answer<A>) {
        let place = mem::replace(&mut self.place, NONE);
        self.answer(place, answer);
    }

    #[inline(always)]
    fn answer(&self, place: u32, answer: Answer<A>) {
        self.slots.spans.forget(place);
        let slot = self.slots.slot(place);
        let mut state = slot.state.lock();
        let runner = state.runner.take();
        if slot.cancelled.load(Ordering::Relaxed) {
            slot.cancelled.store(false, Ordering::Relaxed);
            drop(state);
            drop((runner, answer));
            self.slots.capacity.give_back(place);
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
    #[inline(always)]
    fn drop(&mut self) {
        if self.place != NONE {
            self.close();
        }
    }
}

impl<A> Runner<A> {
    #[inline(never)]
    fn close(&self) {
        self.answer(self.place, Ok(Err(Closed.into())));
    }
}

impl<A> Tag for Runner<A> {
    #[inline]
    fn is_cancelled(&self) -> bool {
        self.slots.slot(self.place).cancelled.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn enter(&self) -> InSpan {
        self.slots.spans.enter(self.place)
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

#[cfg(all(test, not(tower_mq_loom)))]
mod tests {
    use std::sync::Arc;

    use tokio_test::{assert_pending, assert_ready, task::spawn};

    use super::*;
    use crate::capacity::Waiter;

    fn free(slots: &Slots<u8>) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiter = Waiter::default();
        let mut places = Vec::new();
        while let Poll::Ready(Ok(place)) = slots.capacity().poll_take(&mut waiter, &mut cx) {
            places.push(place);
        }
        slots.capacity().leave(&mut waiter);
        let free = places.len();
        places.into_iter().for_each(|place| slots.capacity().give_back(place));
        free
    }

    fn pair() -> (Arc<Slots<u8>>, Caller<u8>, Runner<u8>) {
        let slots = Arc::new(Slots::new(1));
        let mut cx = Context::from_waker(Waker::noop());
        let place =
            assert_ready!(slots.capacity().poll_take(&mut Waiter::default(), &mut cx)).expect("a place");
        let (caller, runner) = slots.split(place);
        (slots, caller, runner)
    }

    #[test]
    fn the_place_is_taken_until_the_answer_is_handed_over() {
        let (slots, mut caller, runner) = pair();
        let mut task = spawn(());
        assert_pending!(task.enter(|cx, _| caller.poll(cx)));
        runner.complete(Ok(Ok(7)));
        assert!(task.is_woken());
        assert_eq!(free(&slots), 0);
        let answer = assert_ready!(task.enter(|cx, _| caller.poll(cx)));
        assert_eq!(answer.expect("no panic").expect("an answer"), 7);
        assert_eq!(free(&slots), 1);
    }

    #[test]
    fn a_runner_that_is_dropped_answers() {
        let (slots, mut caller, runner) = pair();
        drop(runner);
        let answer = assert_ready!(spawn(()).enter(|cx, _| caller.poll(cx)));
        assert!(answer.expect("no panic").expect_err("closed").is::<Closed>());
        assert_eq!(free(&slots), 1);
    }

    #[test]
    fn a_cancelled_place_is_taken_until_the_runner_is_done() {
        let (slots, caller, runner) = pair();
        let task = spawn(());
        let mut task = task;
        assert!(task.enter(|cx, _| runner.watch(cx.waker())));
        assert!(!runner.is_cancelled());
        drop(caller);
        assert!(task.is_woken());
        assert!(runner.is_cancelled());
        assert!(!task.enter(|cx, _| runner.watch(cx.waker())));
        assert_eq!(free(&slots), 0);
        drop(runner);
        assert_eq!(free(&slots), 1);
        let (_caller, runner) = slots.split(0);
        assert!(!runner.is_cancelled(), "the next one begins anew");
    }

    #[test]
    fn an_answer_that_nobody_takes_frees_its_place() {
        let (slots, caller, runner) = pair();
        runner.complete(Ok(Ok(7)));
        drop(caller);
        assert_eq!(free(&slots), 1);
    }
}

#[cfg(all(test, tower_mq_loom))]
mod models {
    use std::{future::poll_fn, sync::Arc};

    use loom::{future::block_on, thread};

    use super::*;
    use crate::capacity::Waiter;

    async fn taken(slots: &Slots<u8>) -> u32 {
        let mut waiter = Waiter::default();
        poll_fn(|cx| slots.capacity().poll_take(&mut waiter, cx)).await.expect("a place")
    }

    #[test]
    fn an_answer_is_never_missed() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(1));
            let (mut caller, runner) = slots.split(block_on(taken(&slots)));
            let answers = thread::spawn(move || runner.complete(Ok(Ok(7))));
            let answer = block_on(poll_fn(|cx| caller.poll(cx)));
            assert!(matches!(answer, Ok(Ok(7))));
            block_on(taken(&slots));
            answers.join().expect("answers");
        });
    }

    /// Whoever comes last frees the place, and only he does.
    #[test]
    fn a_place_is_freed_once_whoever_comes_first() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(1));
            let (mut caller, runner) = slots.split(block_on(taken(&slots)));
            let cancels = thread::spawn(move || {
                _ = caller.poll(&mut Context::from_waker(Waker::noop()));
                drop(caller);
            });
            let answers = thread::spawn(move || match runner.watch(Waker::noop()) {
                true => runner.complete(Ok(Ok(7))),
                false => drop(runner),
            });
            block_on(taken(&slots));
            let mut waiter = Waiter::default();
            let another = slots.capacity().poll_take(&mut waiter, &mut Context::from_waker(Waker::noop()));
            assert!(another.is_pending(), "freed twice");
            cancels.join().expect("cancels");
            answers.join().expect("answers");
        });
    }

    #[test]
    fn a_cancelled_runner_is_woken() {
        loom::model(|| {
            let slots = Arc::new(Slots::<u8>::new(1));
            let (caller, runner) = slots.split(block_on(taken(&slots)));
            let cancels = thread::spawn(move || drop(caller));
            block_on(poll_fn(|cx| match runner.watch(cx.waker()) {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }));
            drop(runner);
            block_on(taken(&slots));
            cancels.join().expect("cancels");
        });
    }
}
