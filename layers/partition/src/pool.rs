//! Workers over the queues of keys: which of them runs what, and when one is woken.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tower_mq_delivery::{BoxError, InSpan, SharedError, Tag};

use crate::{
    lane::Entered,
    queues::Queues,
    slots::{Job, Runner},
    sync::Mutex,
};

/// What waits, and who works. Shared by the handles and the workers.
pub(crate) struct Pool<R, A> {
    state: Mutex<State<R, A>>,
    workers: usize,
}

struct State<R, A> {
    queues: Queues,
    /// By place: what waits.
    jobs: Box<[Option<Job<R, A>>]>,
    /// Keys that may run: something of theirs waits, nothing runs.
    runnable: VecDeque<u64>,
    /// Workers that wait to be woken. The one that came last is the first to go.
    idle: Vec<(u64, Waker)>,
    /// The one worker that was started or woken and has not looked yet. While there is one, nobody else is woken: it
    /// wakes the next when it has found work and there is more. So a burst costs a wake-up or two, and slow handlers
    /// still spread over all workers.
    searcher: Option<u64>,
    alive: usize,
    /// Names the next worker; 0 is nobody.
    named: u64,
    closed: bool,
    failed: Option<SharedError>,
}

impl<R, A> Pool<R, A> {
    pub(crate) fn new(workers: usize, places: u32) -> Self {
        let state = State {
            queues: Queues::of_keys(places),
            jobs: (0..places).map(|_| None).collect(),
            runnable: VecDeque::with_capacity(places as usize),
            idle: Vec::with_capacity(workers),
            searcher: None,
            alive: 0,
            named: 0,
            closed: false,
            failed: None,
        };
        Self { state: Mutex::new(state), workers }
    }

    /// Puts the delivery at the end of its key's queue. `start` is asked for what a worker is started on.
    #[inline]
    pub(crate) fn enter<T>(
        self: &Arc<Self>,
        key: u64,
        request: R,
        runner: Runner<A>,
        start: impl FnOnce() -> Result<T, BoxError>,
    ) -> Entered<(T, Worker<R, A>)> {
        let mut state = self.state.lock();
        let start = if state.wants_another(self.workers) { Some(start()) } else { None };
        let refused = match (&state.failed, &start) {
            (Some(error), _) => Some(error.clone().into()),
            (None, Some(Err(_))) if state.alive == 0 => start.and_then(Result::err),
            _ => {
                let place = runner.place();
                state.jobs[place as usize] = Some((request, runner));
                if !state.queues.push(key, place) {
                    return Entered::Queued;
                }
                state.runnable.push_back(key);
                return match start {
                    Some(Ok(start)) => Entered::Start((start, Worker::new(self.clone(), state.hire()))),
                    _ => {
                        let waker = state.search();
                        drop(state);
                        if let Some(waker) = waker {
                            waker.wake();
                        }
                        Entered::Queued
                    }
                };
            }
        };
        drop(state);
        drop(request);
        if let Some(refused) = refused {
            let refused: BoxError = refused;
            runner.fail(refused);
        }
        Entered::Refused
    }

    /// Nothing more will come: the workers finish what waits, and end.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let idle = mem::take(&mut state.idle);
        drop(state);
        idle.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl<R, A> State<R, A> {
    fn wants_another(&self, workers: usize) -> bool {
        self.alive < workers && self.idle.is_empty() && self.searcher.is_none()
    }

    /// A new worker, which is under way. Gives back its name.
    #[cold]
    fn hire(&mut self) -> u64 {
        self.alive += 1;
        self.named += 1;
        self.searcher = Some(self.named);
        self.named
    }

    /// An idle worker is sent to look for work, if there is work and nobody is looking.
    #[inline]
    fn search(&mut self) -> Option<Waker> {
        if self.searcher.is_some() || self.runnable.is_empty() {
            return None;
        }
        let (name, waker) = self.idle.pop()?;
        self.searcher = Some(name);
        Some(waker)
    }

    #[inline]
    fn finish(&mut self, key: u64) {
        if self.queues.finish(key) {
            self.runnable.push_back(key);
        }
    }

    fn is_over(&self) -> bool {
        self.closed && self.queues.is_empty()
    }

    /// Takes out all that waits.
    fn clear(&mut self) -> Vec<Job<R, A>> {
        let mut waiting = Vec::new();
        for key in mem::take(&mut self.runnable) {
            waiting.extend(self.clear_key(key));
        }
        waiting
    }

    fn clear_key(&mut self, key: u64) -> Vec<Job<R, A>> {
        let mut waiting = Vec::new();
        while let Some(place) = self.queues.take(key, 0) {
            waiting.extend(self.jobs[place as usize].take());
        }
        self.queues.finish(key);
        waiting
    }
}

/// A worker's end of the pool. Dropped, it lets go of its keys; the last one answers what waits.
pub(crate) struct Worker<R, A> {
    pool: Arc<Pool<R, A>>,
    me: Me,
}

/// What a worker knows of itself.
struct Me {
    name: u64,
    /// It has left its waker in the pool.
    idle: bool,
    /// It has looked for work since it last gave way.
    looked: bool,
    /// There is more to do than workers to do it: this one is to be started.
    hired: Option<u64>,
    /// Keys that are done with, and have not been handed back yet.
    finished: Vec<u64>,
}

impl Me {
    /// Is neither idle nor under way any more.
    #[inline]
    fn arrive<R, A>(&mut self, state: &mut State<R, A>) {
        if state.searcher == Some(self.name) {
            state.searcher = None;
        }
        // A waker of this task itself: it may be dropped under the lock, and ends nothing.
        if mem::take(&mut self.idle) {
            state.idle.retain(|(name, _)| *name != self.name);
        }
    }

    #[inline]
    fn hand_back<R, A>(&mut self, state: &mut State<R, A>) {
        while let Some(key) = self.finished.pop() {
            state.finish(key);
        }
    }
}

/// The key of a delivery is held until the response is there, not only until its turn is passed: a batch never has
/// one key twice.
pub(crate) struct Held<A> {
    pub(crate) runner: Runner<A>,
    pub(crate) key: u64,
}

impl<A> Tag for Held<A> {
    #[inline]
    fn is_cancelled(&self) -> bool {
        self.runner.is_cancelled()
    }

    #[inline(always)]
    fn enter(&self) -> InSpan {
        self.runner.enter()
    }

    fn watch(&self, waker: &Waker) -> bool {
        self.runner.watch(waker)
    }
}

impl<R, A> Worker<R, A> {
    fn new(pool: Arc<Pool<R, A>>, name: u64) -> Self {
        Self { pool, me: Me { name, idle: false, looked: false, hired: None, finished: Vec::new() } }
    }

    /// The next delivery whose key nobody works on. Afterwards, [`hired`](Self::hired) is to be started.
    #[inline(always)]
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Option<(R, Held<A>)>> {
        let Self { pool, me } = self;
        let mut state = pool.state.lock();
        me.looked = true;
        me.hand_back(&mut state);
        me.arrive(&mut state);
        while let Some(key) = state.runnable.pop_front() {
            let place = state.queues.take(key, me.name);
            let Some(job) = place.and_then(|place| state.jobs.get_mut(place as usize)) else {
                state.finish(key);
                continue;
            };
            let Some((request, runner)) = job.take() else {
                state.finish(key);
                continue;
            };
            let waker = if state.runnable.is_empty() || state.searcher.is_some() {
                None
            } else if state.wants_another(pool.workers) {
                me.hired = Some(state.hire());
                None
            } else {
                state.search()
            };
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
            return Poll::Ready(Some((request, Held { runner, key })));
        }
        if state.is_over() {
            let idle = mem::take(&mut state.idle);
            drop(state);
            idle.into_iter().for_each(|(_, waker)| waker.wake());
            return Poll::Ready(None);
        }
        me.idle = true;
        state.idle.push((me.name, cx.waker().clone()));
        Poll::Pending
    }

    /// A worker that is to be started.
    #[inline]
    pub(crate) fn hired(&mut self) -> Option<Self> {
        self.me.hired.take().map(|name| Self::new(self.pool.clone(), name))
    }

    /// The delivery is done with.
    #[inline]
    pub(crate) fn finish(&mut self, key: u64) {
        self.me.finished.push(key);
    }

    /// Hands the finished keys back before the worker gives way; afterwards, [`hired`](Self::hired) is to be started.
    /// If it did not look for work, because a parked delivery of its own has woken up, it must not be the one who is
    /// sent to look.
    #[inline]
    pub(crate) fn rest(&mut self) {
        let Self { pool, me } = self;
        let away = me.idle && !me.looked;
        me.looked = false;
        if me.finished.is_empty() && !away {
            return;
        }
        let mut state = pool.state.lock();
        if away {
            me.arrive(&mut state);
        }
        me.hand_back(&mut state);
        let over = if state.is_over() { mem::take(&mut state.idle) } else { Vec::new() };
        // Its keys are free, and it may be busy with another for long.
        let waker = if state.runnable.is_empty() {
            None
        } else if state.wants_another(pool.workers) {
            me.hired = Some(state.hire());
            None
        } else {
            state.search()
        };
        drop(state);
        over.into_iter().for_each(|(_, waker)| waker.wake());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Everybody who waits is told, and everybody who comes.
    pub(crate) fn fail(&mut self, error: &SharedError) {
        let mut state = self.pool.state.lock();
        state.failed = Some(error.clone());
        let mut waiting = state.clear();
        // What waits behind a delivery that another worker runs.
        let busy: Vec<_> = state.jobs.iter_mut().filter_map(Option::take).collect();
        drop(state);
        waiting.extend(busy);
        for (request, runner) in waiting {
            drop(request);
            runner.fail(error.clone());
        }
    }
}

impl<R, A> Drop for Worker<R, A> {
    fn drop(&mut self) {
        let Self { pool, me } = self;
        let mut state = pool.state.lock();
        me.hand_back(&mut state);
        // What this worker ran has been dropped before it was.
        for key in state.queues.held_by(me.name) {
            state.finish(key);
        }
        me.arrive(&mut state);
        state.alive -= 1;
        let waiting = if state.alive == 0 { state.clear() } else { Vec::new() };
        let over = if state.is_over() { mem::take(&mut state.idle) } else { Vec::new() };
        let waker = state.search();
        drop(state);
        drop(waiting);
        over.into_iter().for_each(|(_, waker)| waker.wake());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(all(test, tower_mq_loom))]
mod models {
    use std::future::poll_fn;

    use loom::{future::block_on, thread, thread::JoinHandle};

    use super::*;
    use crate::slots::Slots;

    /// Takes all it can, and starts who is to be started.
    fn work(mut worker: Worker<u8, u8>, seen: Arc<Mutex<Vec<u8>>>) {
        let mut others = Vec::new();
        while let Some((request, tag)) = block_on(poll_fn(|cx| {
            let polled = worker.poll_take(cx);
            others.extend(worker.hired().map(|another| spawned(another, &seen)));
            worker.rest();
            others.extend(worker.hired().map(|another| spawned(another, &seen)));
            polled
        })) {
            seen.lock().push(request);
            drop(tag.runner);
            worker.finish(tag.key);
        }
        drop(worker);
        others.into_iter().for_each(|other| other.join().expect("works"));
    }

    fn spawned(worker: Worker<u8, u8>, seen: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
        let seen = seen.clone();
        thread::spawn(move || work(worker, seen))
    }

    /// Enters deliveries of these keys while the workers work; everything ends, and all of it was taken.
    fn model(workers: usize, keys: &'static [u64]) {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(2);
        bounded.check(move || {
            let pool = Arc::new(Pool::new(workers, 4));
            let slots = Arc::new(Slots::new(4));
            let seen = Arc::new(Mutex::new(Vec::new()));
            let mut threads = Vec::new();
            for (key, place) in keys.iter().zip(0..) {
                let runner = slots.split(place).1;
                if let Entered::Start(((), worker)) = pool.enter(*key, place as u8, runner, || Ok(())) {
                    threads.push(spawned(worker, &seen));
                }
            }
            pool.close();
            threads.into_iter().for_each(|thread| thread.join().expect("works"));
            let mut seen = seen.lock();
            seen.sort_unstable();
            assert_eq!(*seen, (0..keys.len() as u8).collect::<Vec<_>>());
        });
    }

    #[test]
    fn nothing_waits_while_a_worker_is_idle() {
        model(2, &[1, 2]);
    }

    #[test]
    fn what_waits_behind_its_own_key_is_taken_in_the_end() {
        model(2, &[1, 1, 2]);
    }

    #[test]
    fn one_worker_alone_takes_everything() {
        model(1, &[1, 2, 1]);
    }
}
