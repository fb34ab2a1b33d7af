//! Lanes without tasks: a delivery runs inside its own response future when its turn has come.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use tower_mq_delivery::{BoxError, CarryOne, SharedError, Turns};
use tower_service::Service;

use crate::{capacity::Capacity, queues::Queues, service::Template, sync::Mutex};

/// A future that can be pinned in its box, and a box that can be used again.
type Slot<F> = Pin<Box<Option<F>>>;

/// What waits, and who is free. Shared by the handles and the response futures.
pub(crate) struct Inline<S, R>
where
    S: Service<R>,
{
    state: Mutex<State<S, S::Future>>,
    capacity: Capacity,
    template: Template<S>,
    by_lane: bool,
}

struct State<S, F> {
    queues: Queues,
    /// By place.
    seats: Box<[Seat<S>]>,
    /// Keys that may run: something of theirs waits, nothing runs.
    runnable: VecDeque<u64>,
    free: Free<S>,
    spare: Vec<Slot<F>>,
}

/// Where the one who has this place waits for a worker.
struct Seat<S> {
    waker: Option<Waker>,
    worker: Option<Box<Worker<S>>>,
    /// Nobody waits any more. The place is free when its turn comes.
    gone: bool,
}

/// One clone of the service. Who has it may run.
struct Worker<S> {
    service: Option<S>,
    /// The service panicked, or was asked for readiness and not called: it may hold a reservation that others wait for.
    /// It is replaced by a clone, which holds none.
    spoilt: bool,
    /// The service will never be ready again.
    failed: Option<SharedError>,
    turns: Arc<Turns>,
    sequence: u64,
    lane: usize,
}

/// The workers that nobody has.
enum Free<S> {
    /// Each works for its own lane.
    ByLane(Box<[Option<Box<Worker<S>>>]>),
    /// All work for all.
    Any(Vec<Box<Worker<S>>>),
}

impl<S> Free<S> {
    #[inline]
    fn take(&mut self, key: u64) -> Option<Box<Worker<S>>> {
        match self {
            Self::ByLane(workers) => workers[key as usize].take(),
            Self::Any(workers) => workers.pop(),
        }
    }

    #[inline]
    fn put(&mut self, worker: Box<Worker<S>>) {
        match self {
            Self::ByLane(workers) => {
                let lane = worker.lane;
                workers[lane] = Some(worker);
            }
            Self::Any(workers) => workers.push(worker),
        }
    }
}

impl<S, F> State<S, F> {
    /// Gives a free worker to the next key that may run. Whatever has happened, at most one worker and one key were
    /// missing each other. Gives back whom to wake; `gone` are places that are free now.
    #[inline]
    fn grant(&mut self, gone: &mut Vec<u32>) -> Option<Waker> {
        while let Some(&key) = self.runnable.front() {
            let worker = self.free.take(key)?;
            self.runnable.pop_front();
            let Some(place) = self.queues.take(key, 0) else {
                self.free.put(worker);
                continue;
            };
            let seat = &mut self.seats[place as usize];
            if mem::take(&mut seat.gone) {
                gone.push(place);
                self.free.put(worker);
                self.finish(key);
                continue;
            }
            seat.worker = Some(worker);
            return seat.waker.take();
        }
        None
    }

    #[inline]
    fn finish(&mut self, key: u64) {
        if self.queues.finish(key) {
            self.runnable.push_back(key);
        }
    }
}

impl<S, R> Inline<S, R>
where
    S: Service<R>,
{
    pub(crate) fn new(template: Template<S>, n: usize, places: u32, by_lane: bool) -> Self {
        let worker = |lane| {
            Box::new(Worker {
                service: None,
                spoilt: false,
                failed: None,
                turns: Turns::new(),
                sequence: 0,
                lane,
            })
        };
        let state = State {
            queues: if by_lane { Queues::of_lanes(n, places) } else { Queues::of_keys(places) },
            seats: (0..places).map(|_| Seat { waker: None, worker: None, gone: false }).collect(),
            runnable: VecDeque::with_capacity(places as usize),
            free: match by_lane {
                true => Free::ByLane((0..n).map(|lane| Some(worker(lane))).collect()),
                false => Free::Any((0..n).map(worker).collect()),
            },
            spare: Vec::new(),
        };
        Self { state: Mutex::new(state), capacity: Capacity::new(places), template, by_lane }
    }

    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Puts the delivery at the end of its key's queue.
    #[inline]
    pub(crate) fn enter(self: &Arc<Self>, key: u64, request: R, place: u32) -> Ticket<S, R> {
        let (mut worker, mut slot, mut gone) = (None, None, Vec::new());
        let mut state = self.state.lock();
        let mut waker = None;
        if state.queues.push(key, place) {
            state.runnable.push_back(key);
            waker = state.grant(&mut gone);
            // Nobody is ahead of it: it need not ask again.
            worker = state.seats[place as usize].worker.take();
            slot = worker.as_ref().and_then(|_| state.spare.pop());
        }
        drop(state);
        self.tell(gone, waker);
        Ticket {
            inline: self.clone(),
            place,
            key,
            request: Some(request),
            worker,
            slot,
            holds: true,
            done: false,
        }
    }

    /// Changes the state, grants, and then tells whom it concerns, without the lock.
    #[inline]
    fn change(&self, change: impl FnOnce(&mut State<S, S::Future>)) {
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        change(&mut state);
        let waker = state.grant(&mut gone);
        drop(state);
        self.tell(gone, waker);
    }

    #[inline]
    fn tell(&self, gone: Vec<u32>, waker: Option<Waker>) {
        gone.into_iter().for_each(|place| self.capacity.give_back(place));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A delivery in its queue, running or not. Dropped, it is cancelled at once.
pub(crate) struct Ticket<S, R>
where
    S: Service<R>,
{
    inline: Arc<Inline<S, R>>,
    place: u32,
    key: u64,
    /// There until the service is called.
    request: Option<R>,
    worker: Option<Box<Worker<S>>>,
    slot: Option<Slot<S::Future>>,
    /// The key, or the queue, is not free for the next one.
    holds: bool,
    done: bool,
}

impl<S, R> Ticket<S, R>
where
    S: Service<R> + Clone,
    S::Error: Into<BoxError>,
    R: CarryOne,
{
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Response, BoxError>> {
        assert!(!self.done, "the response of a partition was polled after it was ready");
        if self.request.is_some() && self.worker.is_none() {
            ready!(self.poll_worker(cx));
        }
        match catch_unwind(AssertUnwindSafe(|| self.poll_run(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(answer)) => {
                self.leave();
                Poll::Ready(answer)
            }
            Err(panic) => {
                self.leave();
                resume_unwind(panic)
            }
        }
    }

    /// Waits for the turn of its key, and for a worker.
    #[inline]
    fn poll_worker(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.inline.state.lock();
        let seat = &mut state.seats[self.place as usize];
        if let Some(worker) = seat.worker.take() {
            self.worker = Some(worker);
            self.slot = state.spare.pop();
            return Poll::Ready(());
        }
        let replaced = match &seat.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => seat.waker.replace(cx.waker().clone()),
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    #[inline]
    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Response, BoxError>> {
        if self.request.is_some()
            && let Err(error) = ready!(self.poll_start(cx))
        {
            return Poll::Ready(Err(error));
        }
        let Some(future) = self.slot.as_mut().and_then(|slot| slot.as_mut().as_pin_mut()) else {
            return Poll::Pending;
        };
        if let Poll::Ready(answer) = future.poll(cx) {
            return Poll::Ready(answer.map_err(Into::into));
        }
        if let Some(worker) = &self.worker
            && worker.turns.wait(worker.sequence, u64::MAX, cx)
        {
            self.pass();
        }
        Poll::Pending
    }

    /// Asks for readiness, then calls the service.
    #[inline]
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Some(worker) = &mut self.worker else { return Poll::Pending };
        if let Some(error) = &worker.failed {
            return Poll::Ready(Err(error.clone().into()));
        }
        let service = worker.service.get_or_insert_with(|| self.inline.template.service());
        worker.spoilt = true;
        let ready = service.poll_ready(cx);
        if let Err(error) = ready!(ready) {
            let error = SharedError::from(error.into());
            worker.failed = Some(error.clone());
            self.inline.capacity.fail(&error);
            return Poll::Ready(Err(error.into()));
        }
        let Some(mut request) = self.request.take() else { return Poll::Pending };
        worker.sequence += 1;
        let _theirs = request.message_mut().set_turn(worker.turns.turn(worker.sequence));
        let future = service.call(request);
        worker.spoilt = false;
        self.slot.get_or_insert_with(|| Box::pin(None)).set(Some(future));
        Poll::Ready(Ok(()))
    }

    /// Its turn was passed: somebody in the service keeps the order from here, so the worker is free. A lane is free
    /// with it; a key is not: a batch never has one key twice.
    fn pass(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        let (key, frees_queue) = (self.key, self.inline.by_lane);
        self.holds = !frees_queue;
        self.inline.change(|state| {
            state.free.put(worker);
            if frees_queue {
                state.finish(key);
            }
        });
    }
}

impl<S, R> Ticket<S, R>
where
    S: Service<R>,
{
    /// It is done with, or nobody wants it: makes room for the next one.
    #[inline]
    fn leave(&mut self) {
        self.done = true;
        // What it ran is gone before anything of the same key starts.
        drop(self.request.take());
        let mut slot = self.slot.take();
        if let Some(slot) = &mut slot {
            slot.set(None);
        }
        let mut worker = self.worker.take();
        if let Some(worker) = &mut worker
            && mem::take(&mut worker.spoilt)
        {
            worker.service = None;
        }
        let (key, holds) = (self.key, self.holds);
        self.inline.change(|state| {
            state.spare.extend(slot);
            if let Some(worker) = worker {
                state.free.put(worker);
            }
            if holds {
                state.finish(key);
            }
        });
        self.inline.capacity.give_back(self.place);
    }
}

impl<S, R> Drop for Ticket<S, R>
where
    S: Service<R>,
{
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.request.is_some() && self.worker.is_none() {
            let mut state = self.inline.state.lock();
            let seat = &mut state.seats[self.place as usize];
            let waker = seat.waker.take();
            self.worker = seat.worker.take();
            seat.gone = self.worker.is_none();
            let gone = seat.gone;
            drop(state);
            drop(waker);
            if gone {
                return;
            }
        }
        self.leave();
    }
}
