//! A lane as a task: a queue, and the loop that runs the service over it.

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tower_mq_delivery::{BoxError, CarryOne, Drive, Event, Finished, Intake, Origin, SharedError, Stopped};
use tower_service::Service;

use crate::{
    service::Template,
    slots::{Job, Runner, Slots},
    sync::{AtomicUsize, Mutex, Ordering},
};

/// The queue of one lane.
pub(crate) struct Lane<R, A> {
    state: Mutex<State<R, A>>,
    /// How many the lane has taken out of the queue and not begun with, as far as anybody is told.
    local: AtomicUsize,
    /// A queue that is empty and has more room than this gives it back: a lane that was hot once stays small.
    roomy: usize,
}

struct State<R, A> {
    queue: VecDeque<Job<R, A>>,
    /// Of the lane's task, while it waits for a delivery.
    waker: Option<Waker>,
    started: bool,
    closed: bool,
    failed: Option<SharedError>,
}

/// What came of an attempt to enter a lane.
pub(crate) enum Entered<T> {
    /// The delivery is in the queue.
    Queued,
    /// The delivery is in the queue, and a task is to be started.
    Start(T),
    /// The caller was told why not.
    Refused,
}

impl<R, A> Lane<R, A> {
    pub(crate) fn new(roomy: usize) -> Self {
        let state =
            State { queue: VecDeque::new(), waker: None, started: false, closed: false, failed: None };
        Self { state: Mutex::new(state), local: AtomicUsize::new(0), roomy }
    }

    /// Puts the delivery at the end of the queue. `start` is asked for what a task is started on.
    #[inline]
    pub(crate) fn enter<T>(
        &self,
        request: R,
        runner: Runner<A>,
        start: impl FnOnce() -> Result<T, BoxError>,
    ) -> Entered<T> {
        let mut state = self.state.lock();
        if state.started && state.failed.is_none() {
            state.queue.push_back((request, runner));
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
            return Entered::Queued;
        }
        let refused = match (&state.failed, start()) {
            (Some(error), _) => error.clone().into(),
            (None, Err(error)) => error,
            (None, Ok(start)) => {
                state.started = true;
                state.queue.push_back((request, runner));
                return Entered::Start(start);
            }
        };
        drop(state);
        drop(request);
        runner.fail(refused);
        Entered::Refused
    }

    /// How many wait in it. For those who are told.
    #[cold]
    pub(crate) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.queue.len() + self.local.load(Ordering::Relaxed)
    }

    /// Nothing more will come: the lane finishes its queue and ends.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The lane's end of the queue. Dropped, it answers what is queued, and the next delivery starts the lane anew.
pub(crate) struct LaneIntake<R, A> {
    number: usize,
    lane: Arc<Lane<R, A>>,
    /// Swapped with the queue when it is empty: one lock for each burst.
    local: VecDeque<Job<R, A>>,
}

impl<R, A> LaneIntake<R, A> {
    pub(crate) fn new(number: usize, lane: Arc<Lane<R, A>>) -> Self {
        Self { number, lane, local: VecDeque::new() }
    }

    #[inline(always)]
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Option<Job<R, A>>> {
        match self.local.is_empty() {
            true => self.poll_fill(cx).map(|()| self.local.pop_front()),
            false => Poll::Ready(self.local.pop_front()),
        }
    }

    /// Waits until there is something at hand. If there is nothing then, nothing more will come.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.local.capacity() > self.lane.roomy {
            self.local = VecDeque::new();
        }
        let mut state = self.lane.state.lock();
        if state.queue.is_empty() {
            if state.closed {
                return Poll::Ready(());
            }
            // A waker that is replaced is one of this task, so dropping it ends nothing.
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        mem::swap(&mut self.local, &mut state.queue);
        self.lane.local.store(self.local.len(), Ordering::Relaxed);
        Poll::Ready(())
    }
}

impl<R: CarryOne, A, E: Into<BoxError>> Intake<R, Result<A, E>> for LaneIntake<R, A> {
    type Tag = Runner<A>;

    #[inline]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Job<R, A>>> {
        if Origin::is_any_observed() {
            self.tell(cx);
        }
        self.poll_take(cx)
    }

    #[inline]
    fn done(&mut self, runner: Runner<A>, finished: Finished<Result<A, E>>) {
        runner.finish(finished);
    }
}

impl<R: CarryOne, A> LaneIntake<R, A> {
    /// Tells that the lane is about to begin with the next one.
    #[cold]
    fn tell(&mut self, cx: &mut Context<'_>) {
        if self.local.is_empty() {
            // If there is nothing, it is asked again, and says so again.
            _ = self.poll_fill(cx);
        }
        if let Some((next, _)) = self.local.front() {
            self.lane.local.store(self.local.len() - 1, Ordering::Relaxed);
            report(next, self.number, || self.lane.waiting());
        }
    }
}

impl<R, A> Drop for LaneIntake<R, A> {
    fn drop(&mut self) {
        let mut state = self.lane.state.lock();
        state.started = false;
        let rest = (mem::take(&mut state.queue), state.waker.take());
        drop(state);
        self.lane.local.store(0, Ordering::Relaxed);
        self.local.clear();
        drop(rest);
    }
}

/// Tells, if anybody listens, how many wait in this lane.
#[inline(always)]
pub(crate) fn report<R: CarryOne>(request: &R, lane: usize, waiting: impl FnOnce() -> usize) {
    let message = request.message();
    if message.is_observed() {
        message.origin().report(&Event::Lane { lane, waiting: waiting() });
    }
}

/// An intake whose service may fail for good.
pub(crate) trait Failing<R, O>: Intake<R, O> {
    /// Tells everybody who is queued, and everybody who comes, beginning with the request in hand.
    fn fail(&mut self, held: Option<(R, Self::Tag)>, error: &SharedError);
}

impl<R: CarryOne, A, E: Into<BoxError>> Failing<R, Result<A, E>> for LaneIntake<R, A> {
    fn fail(&mut self, held: Option<Job<R, A>>, error: &SharedError) {
        let mut state = self.lane.state.lock();
        state.failed = Some(error.clone());
        let queue = mem::take(&mut state.queue);
        self.lane.local.store(0, Ordering::Relaxed);
        drop(state);
        for (request, runner) in held.into_iter().chain(self.local.drain(..)).chain(queue) {
            drop(request);
            runner.fail(error.clone());
        }
    }
}

/// Runs the service over the intake until there is nothing more to come.
///
/// A service that panicked in `poll_ready` or `call`, or was readied for nothing, is replaced by a fresh clone. When one fails for good, nobody
/// gets a place any more, and what runs is finished.
pub(crate) async fn run<S, R, I>(intake: I, template: Arc<Template<S>>, slots: Arc<Slots<S::Response>>)
where
    S: Service<R> + Clone,
    S::Error: Into<BoxError>,
    R: CarryOne,
    I: Failing<R, Result<S::Response, S::Error>>,
{
    let mut drive = Drive::new(intake, template.service());
    loop {
        match poll_fn(|cx| drive.poll(cx)).await {
            Ok(()) => return,
            Err(Stopped::Broken | Stopped::Declined) => drive.replace(template.service()),
            Err(Stopped::Failed(error)) => {
                let error = SharedError::from(error.into());
                slots.capacity().fail(&error);
                let held = drive.stop();
                drive.intake().fail(held, &error);
            }
        }
    }
}

#[cfg(all(test, tower_mq_loom))]
mod models {
    use loom::{future::block_on, thread};

    use super::*;

    fn runner(slots: &Arc<Slots<u8>>, place: u32) -> Runner<u8> {
        slots.split(place).1
    }

    fn enter(lane: &Lane<u8, u8>, request: u8, runner: Runner<u8>) {
        match lane.enter(request, runner, || Ok(())) {
            Entered::Queued | Entered::Start(()) => {}
            Entered::Refused => panic!("refused"),
        }
    }

    #[test]
    fn a_lane_that_waits_is_woken_by_what_enters_and_by_the_end() {
        loom::model(|| {
            let (lane, slots) = (Arc::new(Lane::new(8)), Arc::new(Slots::new(3)));
            enter(&lane, 1, runner(&slots, 0));
            let mut intake = LaneIntake::new(0, lane.clone());
            let enters = thread::spawn({
                let (lane, slots) = (lane.clone(), slots.clone());
                move || {
                    enter(&lane, 2, runner(&slots, 1));
                    enter(&lane, 3, runner(&slots, 2));
                    lane.close();
                }
            });
            let mut seen = Vec::new();
            while let Some((request, runner)) = block_on(poll_fn(|cx| intake.poll_take(cx))) {
                drop(runner);
                seen.push(request);
            }
            assert_eq!(seen, [1, 2, 3]);
            enters.join().expect("enters");
        });
    }

    #[test]
    fn what_enters_while_the_lane_dies_is_answered_or_starts_it_anew() {
        loom::model(|| {
            let (lane, slots) = (Arc::new(Lane::new(8)), Arc::new(Slots::<u8>::new(2)));
            enter(&lane, 1, runner(&slots, 0));
            let intake = LaneIntake::new(0, lane.clone());
            let (mut caller, runner) = slots.split(1);
            let dies = thread::spawn(move || drop(intake));
            let entered = lane.enter(2, runner, || Ok(()));
            dies.join().expect("dies");
            if let Entered::Start(()) = entered {
                drop(LaneIntake::new(0, lane.clone()));
            }
            let answer = block_on(poll_fn(|cx| caller.poll(cx)));
            assert!(matches!(answer, Ok(Err(_))));
        });
    }
}
