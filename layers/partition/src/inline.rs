//! Lanes without tasks: a delivery runs inside its own response future when its turn has come.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    thread,
};

use tower_mq_delivery::{BoxError, CarryOne, SharedError, Turns};
use tower_service::Service;

use crate::{capacity::Capacity, lane::report, queues::Queues, service::Template, spans::Spans, sync::Mutex};

/// A future that can be pinned in its box, and a box that can be used again.
pub(crate) type Slot<F> = Pin<Box<Option<F>>>;

/// What waits, and who is free. Shared by the handles and the response futures.
pub(crate) struct Inline<S, R>
where
    S: Service<R>,
{
    state: Mutex<State<S, R, S::Future>>,
    capacity: Capacity,
    spans: Spans,
    template: Template<S>,
    by_lane: bool,
}

pub(crate) struct State<S, R, F> {
    queues: Queues,
    /// By place.
    seats: Box<[Seat<S, R, F>]>,
    /// Keys that may run, but there is no worker: something of theirs waits, nothing runs. A lane has its own worker.
    runnable: VecDeque<u64>,
    free: Free<S, R, F>,
    spare: Vec<Slot<F>>,
}

/// Where the one who has this place waits for a worker.
struct Seat<S, R, F> {
    request: Option<R>,
    waker: Option<Waker>,
    worker: Option<Hand<S, R, F>>,
    /// Nobody waits any more. The place is free when its turn comes.
    gone: bool,
}

/// The workers that nobody has.
enum Free<S, R, F> {
    /// Each works for its own lane.
    ByLane(Box<[Option<Hand<S, R, F>>]>),
    /// All work for all.
    Any(Vec<Hand<S, R, F>>),
}

impl<S, R, F> Free<S, R, F> {
    #[inline]
    fn take(&mut self, key: u64) -> Option<Hand<S, R, F>> {
        match self {
            Self::ByLane(workers) => workers[key as usize].take(),
            Self::Any(workers) => workers.pop(),
        }
    }

    #[inline]
    fn put(&mut self, worker: Hand<S, R, F>) {
        match self {
            Self::ByLane(workers) => {
                let lane = worker.lane;
                workers[lane] = Some(worker);
            }
            Self::Any(workers) => workers.push(worker),
        }
    }
}

/// A worker in somebody's hand, or free.
pub(crate) type Hand<S, R, F> = Box<Worker<S, R, F>>;

/// One clone of the service, and what it is busy with. Who has it may run.
pub(crate) struct Worker<S, R, F> {
    service: Option<S>,
    /// The service panicked, or was asked for readiness and not called: it may hold a reservation that others wait for.
    /// It is replaced by a clone, which holds none.
    spoilt: bool,
    /// The service will never be ready again.
    failed: Option<SharedError>,
    /// There until the service is called.
    request: Option<R>,
    slot: Slot<F>,
    turns: Arc<Turns>,
    sequence: u64,
    lane: usize,
}

impl<S, R, F> Worker<S, R, F> {
    fn new(lane: usize) -> Self {
        Self {
            service: None,
            spoilt: false,
            failed: None,
            request: None,
            slot: Box::pin(None),
            turns: Turns::new(),
            sequence: 0,
            lane,
        }
    }

    /// Its delivery keeps the order elsewhere from now on. If not, the waker is woken when it does.
    pub(crate) fn is_passed(&self, cx: &mut Context<'_>) -> bool {
        self.request.is_none() && self.turns.wait(self.sequence, u64::MAX, cx)
    }

    /// Its turns, if somebody wants to hear when it has nothing to do.
    #[inline]
    fn asked_if_idle(&self) -> Option<Arc<Turns>> {
        self.turns.is_idle_asked().then(|| self.turns.clone())
    }

    /// Drops what it is busy with, which may panic.
    #[inline(always)]
    fn rest(&mut self) -> thread::Result<()> {
        if self.request.is_none() && self.slot.is_none() && !self.spoilt {
            return Ok(());
        }
        self.drop_work()
    }

    #[cold]
    fn drop_work(&mut self) -> thread::Result<()> {
        catch_unwind(AssertUnwindSafe(|| {
            self.request = None;
            self.slot.set(None);
            if mem::take(&mut self.spoilt) {
                self.service = None;
            }
        }))
    }
}

impl<S, R> Worker<S, R, S::Future>
where
    S: Service<R> + Clone,
    S::Error: Into<BoxError>,
    R: CarryOne,
{
    /// Runs its delivery.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        inline: &Inline<S, R>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S::Response, BoxError>> {
        if self.request.is_some() {
            ready!(self.poll_start(inline, cx))?;
        }
        poll_slot(&mut self.slot, cx)
    }

    /// Asks for readiness, then calls the service.
    #[inline]
    fn poll_start(&mut self, inline: &Inline<S, R>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone().into()));
        }
        let service = self.service.get_or_insert_with(|| inline.template.service());
        self.spoilt = true;
        if let Err(error) = ready!(service.poll_ready(cx)) {
            let error = SharedError::from(error.into());
            self.failed = Some(error.clone());
            inline.capacity.fail(&error);
            return Poll::Ready(Err(error.into()));
        }
        let Some(mut request) = self.request.take() else { return Poll::Pending };
        self.sequence += 1;
        let _theirs = request.message_mut().set_turn(self.turns.turn(self.sequence));
        let future = service.call(request);
        self.spoilt = self.turns.take_declined();
        self.slot.set(Some(future));
        Poll::Ready(Ok(()))
    }
}

/// Polls the future in the slot, and drops it when it is done.
#[inline]
pub(crate) fn poll_slot<F, T, E>(slot: &mut Slot<F>, cx: &mut Context<'_>) -> Poll<Result<T, BoxError>>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    let Some(future) = slot.as_mut().as_pin_mut() else { return Poll::Pending };
    let answer = ready!(future.poll(cx));
    slot.set(None);
    Poll::Ready(answer.map_err(Into::into))
}

impl<S, R, F> State<S, R, F> {
    /// Gives the worker to the first of this key who still waits. `gone` are places that are free now. `Err`: nobody
    /// waits, here is the worker.
    #[inline(always)]
    fn seat(
        &mut self,
        key: u64,
        worker: Hand<S, R, F>,
        gone: &mut Vec<u32>,
    ) -> Result<Option<Waker>, Hand<S, R, F>> {
        while let Some(place) = self.queues.take(key, 0) {
            let seat = &mut self.seats[place as usize];
            if !mem::take(&mut seat.gone) {
                seat.worker = Some(worker);
                return Ok(seat.waker.take());
            }
            gone.push(place);
            if !self.queues.finish(key) {
                break;
            }
        }
        Err(worker)
    }

    /// A worker is free, or a key, or both; at most one of each was missing the other. Gives back whom to wake. `idle`
    /// are the turns of a worker that has nothing to do, if somebody wants to hear of it.
    #[inline(always)]
    fn release(
        &mut self,
        worker: Option<Hand<S, R, F>>,
        key: Option<u64>,
        gone: &mut Vec<u32>,
        idle: &mut Option<Arc<Turns>>,
    ) -> Option<Waker> {
        let waits = key.filter(|key| self.queues.finish(*key));
        let mut worker = match (worker, &mut self.free) {
            (Some(worker), Free::ByLane(_)) => {
                let back = match waits {
                    Some(lane) => self.seat(lane, worker, gone),
                    None => Err(worker),
                };
                return back.unwrap_or_else(|worker| {
                    *idle = worker.asked_if_idle();
                    self.free.put(worker);
                    None
                });
            }
            (Some(worker), Free::Any(_)) => {
                if let Some(key) = waits {
                    self.runnable.push_back(key);
                }
                worker
            }
            (None, free) => {
                let key = waits?;
                let Some(worker) = free.take(key) else {
                    self.runnable.push_back(key);
                    return None;
                };
                self.runnable.push_back(key);
                worker
            }
        };
        while let Some(key) = self.runnable.pop_front() {
            match self.seat(key, worker, gone) {
                Ok(waker) => return waker,
                Err(back) => worker = back,
            }
        }
        *idle = worker.asked_if_idle();
        self.free.put(worker);
        None
    }
}

impl<S, R> Inline<S, R>
where
    S: Service<R>,
{
    pub(crate) fn new(template: Template<S>, n: usize, places: u32, by_lane: bool) -> Self {
        let worker = |lane| Box::new(Worker::new(lane));
        let state = State {
            queues: if by_lane { Queues::of_lanes(n, places) } else { Queues::of_keys(places) },
            seats: (0..places)
                .map(|_| Seat { request: None, waker: None, worker: None, gone: false })
                .collect(),
            runnable: VecDeque::with_capacity(places as usize),
            free: match by_lane {
                true => Free::ByLane((0..n).map(|lane| Some(worker(lane))).collect()),
                false => Free::Any((0..n).map(worker).collect()),
            },
            spare: Vec::new(),
        };
        let (capacity, spans) = (Capacity::new(places), Spans::new(places));
        Self { state: Mutex::new(state), capacity, spans, template, by_lane }
    }

    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Tells how many wait in this lane, this one with them if it is about to `enter`.
    #[inline]
    fn tell(&self, request: &R, lane: u64, enters: usize)
    where
        R: CarryOne,
    {
        if self.by_lane {
            report(request, lane as usize, || self.state.lock().queues.waiting(lane) + enters);
        }
    }

    pub(crate) fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Puts the delivery at the end of its key's queue.
    #[inline]
    pub(crate) fn enter(&self, key: u64, request: R, place: u32)
    where
        R: CarryOne,
    {
        self.tell(&request, key, 1);
        self.spans.keep(place);
        let mut gone = Vec::new();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.seats[place as usize].request = Some(request);
        if state.queues.push(key, place) {
            match state.free.take(key) {
                // It is the first of its key, so nobody else is woken.
                Some(worker) => _ = state.seat(key, worker, &mut gone),
                None => state.runnable.push_back(key),
            }
        }
    }

    /// Waits for the turn of its key, and for a worker.
    #[inline]
    pub(crate) fn poll_worker(
        &self,
        key: u64,
        place: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Hand<S, R, S::Future>>
    where
        R: CarryOne,
    {
        let mut state = self.state.lock();
        let seat = &mut state.seats[place as usize];
        if let Some(mut worker) = seat.worker.take() {
            worker.request = seat.request.take();
            drop(state);
            if let Some(request) = &worker.request {
                self.tell(request, key, 0);
            }
            return Poll::Ready(worker);
        }
        let replaced = match &seat.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => seat.waker.replace(cx.waker().clone()),
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Nobody waits at this place any more. If a worker was there already, it looks for other work.
    pub(crate) fn stand_up(&self, place: u32, key: u64) {
        let mut state = self.state.lock();
        let seat = &mut state.seats[place as usize];
        let (request, waker, worker) = (seat.request.take(), seat.waker.take(), seat.worker.take());
        seat.gone = worker.is_none();
        drop(state);
        drop((request, waker));
        if let Some(worker) = worker {
            self.leave(worker, key, place);
        }
    }

    /// A delivery is done with, or nobody wants it. What it ran is gone before anything of the same key starts.
    #[inline(always)]
    pub(crate) fn leave(&self, mut worker: Hand<S, R, S::Future>, key: u64, place: u32) {
        let dropped = worker.rest();
        self.release(Some(worker), Some(key));
        self.capacity.give_back(place);
        // Not before others can go on.
        dropped.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// The turn of its delivery was passed: somebody in the service keeps the order from here, so the worker is free.
    /// A lane is free with it; a key is not: a batch never has one key twice. Gives back where the delivery runs.
    pub(crate) fn pass(&self, mut worker: Hand<S, R, S::Future>, key: u64) -> Slot<S::Future> {
        let spare = self.state.lock().spare.pop().unwrap_or_else(|| Box::pin(None));
        let slot = mem::replace(&mut worker.slot, spare);
        self.release(Some(worker), self.by_lane.then_some(key));
        slot
    }

    /// A delivery whose turn was passed is done with, or nobody wants it.
    pub(crate) fn leave_passed(&self, mut slot: Slot<S::Future>, key: u64, place: u32) {
        let dropped = match slot.is_some() {
            true => catch_unwind(AssertUnwindSafe(|| slot.set(None))),
            false => Ok(()),
        };
        self.state.lock().spare.push(slot);
        self.release(None, (!self.by_lane).then_some(key));
        self.capacity.give_back(place);
        dropped.unwrap_or_else(|panic| resume_unwind(panic));
    }

    #[cold]
    fn give_back(&self, places: Vec<u32>) {
        places.into_iter().for_each(|place| self.capacity.give_back(place));
    }

    #[inline(always)]
    fn release(&self, worker: Option<Hand<S, R, S::Future>>, key: Option<u64>) {
        let (mut gone, mut idle) = (Vec::new(), None);
        let mut state = self.state.lock();
        let waker = state.release(worker, key, &mut gone, &mut idle);
        drop(state);
        // Without the lock, as others are woken: that may run anything.
        if let Some(turns) = idle {
            turns.idle();
        }
        if !gone.is_empty() {
            self.give_back(gone);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
