//! The right to be the delivery that holds up the queue.
//!
//! A driver runs any service one delivery at a time, and yet many at a time as soon as a layer anywhere in the stack
//! takes over the order. Tower gives no way to ask a service whether such a layer is in it, so the message carries
//! the answer: the driver puts a [`Turn`] into each message, and takes the next delivery when that turn has been
//! *passed* or the response has completed.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
    task::{Context, Waker},
};

use parking_lot::Mutex;

use crate::sync::{AtomicU64, AtomicWaker, Ordering};

/// The turns that one driver or lane hands out, one after the other.
pub struct Turns {
    id: usize,
    // 2 × the last sequence number that was passed, + 1 while the driver waits to be woken.
    passed: AtomicU64,
    // How many deliveries sleep: their turns are not passed, but they do not use their worker.
    parked: AtomicU64,
    // Only ever looked at by the one who calls the service.
    declined: AtomicBool,
    // Those who want to know when there is nothing more to take, and whether there are any.
    idle: Mutex<Vec<Waker>>,
    idle_asked: AtomicBool,
    // How many deliveries hold up the queue until one that was taken before them ends.
    stalled: AtomicUsize,
    waker: AtomicWaker,
}

impl Turns {
    /// Turns of a new owner.
    pub fn new() -> Arc<Self> {
        // Zero is the owner of detached turns. An address would be used again, a count is not.
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Arc::new(Self {
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            passed: AtomicU64::new(0),
            parked: AtomicU64::new(0),
            declined: AtomicBool::new(false),
            idle: Mutex::new(Vec::new()),
            idle_asked: AtomicBool::new(false),
            stalled: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
        })
    }

    /// The turn of the delivery with this sequence number. Numbers grow; the first is 1.
    #[inline]
    pub fn turn(self: &Arc<Self>, sequence: u64) -> Turn {
        Turn(Some((self.clone(), sequence)))
    }

    /// Whether this turn was passed.
    #[inline]
    pub fn is_passed(&self, sequence: u64) -> bool {
        self.passed.load(Ordering::Acquire) >> 1 >= sequence
    }

    /// How many deliveries sleep with their turn in hand.
    #[inline]
    pub fn parked(&self) -> u64 {
        self.parked.load(Ordering::Acquire)
    }

    /// Whether a delivery was declined since this was last asked.
    #[inline]
    pub fn take_declined(&self) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        self.declined.load(Relaxed) && self.declined.swap(false, Relaxed)
    }

    /// For drivers: there is nothing to take at the moment.
    #[inline]
    pub fn idle(&self) {
        if self.is_idle_asked() {
            self.wake_idle();
        }
    }

    /// For drivers: whether anybody wants to be told that there is [nothing to take](Self::idle).
    #[inline]
    pub fn is_idle_asked(&self) -> bool {
        self.idle_asked.load(std::sync::atomic::Ordering::Acquire)
    }

    #[cold]
    fn wake_idle(&self) {
        let asked = {
            let mut idle = self.idle.lock();
            self.idle_asked.store(false, std::sync::atomic::Ordering::Release);
            std::mem::take(&mut *idle)
        };
        asked.into_iter().for_each(Waker::wake);
    }

    /// Registers to be woken when the turn is passed or a delivery is parked. `true`: there is no need to wait, the
    /// turn was passed, or a delivery parked beyond `parked`, meanwhile.
    pub fn wait(&self, sequence: u64, parked: u64, cx: &mut Context<'_>) -> bool {
        if self.is_passed(sequence) || self.parked() > parked {
            return true;
        }
        self.waker.register(cx.waker());
        let passed = self.passed.fetch_or(1, Ordering::AcqRel);
        passed >> 1 >= sequence || self.parked() > parked
    }

    #[inline]
    fn pass(&self, sequence: u64) {
        let old = self.passed.fetch_max(sequence << 1, Ordering::AcqRel);
        // The maximum has cleared the mark of the one who waits, if it grew.
        if old & 1 == 1 && old < sequence << 1 {
            self.waker.wake();
        }
    }

    fn park(&self) {
        self.parked.fetch_add(1, Ordering::AcqRel);
        if self.passed.fetch_and(!1, Ordering::AcqRel) & 1 == 1 {
            self.waker.wake();
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("owner", &self.id).finish_non_exhaustive()
    }
}

/// The right to be the delivery that holds up the queue.
///
/// Dropping a turn does nothing, on purpose: a handler that drops its message unleashes nothing. Clones are the same
/// turn; passing it twice, or late, is harmless.
#[derive(Clone, Default)]
#[must_use]
pub struct Turn(Option<(Arc<Turns>, u64)>);

impl Turn {
    /// A turn of nobody: passing it does nothing. What a message has outside a driver.
    pub const fn detached() -> Self {
        Self(None)
    }

    /// "I keep the order from here: take the next delivery."
    ///
    /// For layers that queue. Pass it once the delivery is in your queue, and only if something bounds that queue
    /// (a place reserved in `poll_ready`).
    #[inline]
    pub fn pass(&self) {
        if let Some((turns, sequence)) = &self.0 {
            turns.pass(*sequence);
        }
    }

    /// "I answer this delivery myself: what I stand on was made ready for it, and is not called."
    ///
    /// For layers that sometimes answer in the place of their inner service, to be said in `call`. Readiness may have
    /// reserved something, a place under a limit, and a lane that has nothing more to do would keep it from the others:
    /// it goes on with a fresh clone.
    pub fn decline(&self) {
        if let Some((turns, _)) = &self.0 {
            turns.declined.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Whether it was passed. A detached turn never is.
    pub fn is_passed(&self) -> bool {
        self.0.as_ref().is_some_and(|(turns, sequence)| turns.is_passed(*sequence))
    }

    /// Wakes this, once, when the one whose turn it is next finds nothing to take: for layers that gather what is there.
    /// A waker that is there already is not added again. Of a detached turn it is woken at once, and so it is while a
    /// delivery [stalls](Self::stall) the queue.
    pub fn when_idle(&self, waker: &Waker) {
        let Some((turns, _)) = &self.0 else { return waker.wake_by_ref() };
        let mut idle = turns.idle.lock();
        // Looked at under the lock: whoever stalls later takes it, and wakes what it finds.
        if turns.stalled.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            drop(idle);
            return waker.wake_by_ref();
        }
        if !idle.iter().any(|there| there.will_wake(waker)) {
            idle.push(waker.clone());
        }
        turns.idle_asked.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Whose turn it is: one number for each driver or lane, zero for detached turns. Two deliveries of one owner may
    /// share a batch; two of different owners must not.
    pub fn owner(&self) -> usize {
        self.0.as_ref().map_or(0, |(turns, _)| turns.id)
    }

    /// "This delivery sleeps; my worker may serve *other* keys until the guard is dropped." A driver that cannot tell
    /// keys apart ignores it.
    pub fn park(&self) -> Parked {
        let turns =
            self.0.as_ref().filter(|(turns, sequence)| !turns.is_passed(*sequence)).map(|(turns, _)| {
                turns.park();
                turns.clone()
            });
        Parked(turns)
    }

    /// "I hold up the queue until one that was taken before me ends: nothing more is taken while the guard is held." For
    /// those who gather what is there, this is as good as [nothing to take](Self::when_idle): what I wait for may stand
    /// in their hands.
    pub fn stall(&self) -> Stalled {
        let turns =
            self.0.as_ref().filter(|(turns, sequence)| !turns.is_passed(*sequence)).map(|(turns, _)| {
                turns.stalled.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                turns.wake_idle();
                turns.clone()
            });
        Stalled(turns)
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((turns, sequence)) => {
                f.debug_struct("Turn").field("owner", &turns.id).field("sequence", sequence).finish()
            }
            None => f.write_str("Turn(detached)"),
        }
    }
}

/// A delivery sleeps while this is held. See [`Turn::park`].
#[must_use = "the delivery is awake again when this is dropped"]
pub struct Parked(Option<Arc<Turns>>);

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(turns) = &self.0 {
            turns.parked.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parked")
    }
}

/// A delivery holds up the queue until another one ends, while this is held. See [`Turn::stall`].
#[must_use = "the queue is no longer known to be held up when this is dropped"]
pub struct Stalled(Option<Arc<Turns>>);

impl Drop for Stalled {
    fn drop(&mut self) {
        if let Some(turns) = &self.0 {
            turns.stalled.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stalled")
    }
}

#[cfg(all(test, not(tower_mq_loom)))]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_stale_turn_is_harmless() {
        let turns = Turns::new();
        let (first, second) = (turns.turn(1), turns.turn(2));
        second.pass();
        first.pass();
        assert!(turns.is_passed(2));
        assert!(!turns.is_passed(3));
        assert!(first.is_passed());
    }

    #[test]
    fn passing_wakes_the_one_who_waits() {
        let turns = Turns::new();
        let (waker, count) = futures_count();
        let mut cx = Context::from_waker(&waker);
        assert!(!turns.wait(1, 0, &mut cx));
        turns.turn(1).pass();
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(turns.wait(1, 0, &mut cx));
    }

    #[test]
    fn a_dropped_turn_passes_nothing() {
        let turns = Turns::new();
        drop(turns.turn(1));
        assert!(!turns.is_passed(1));
    }

    #[test]
    fn parking_is_seen_until_the_guard_is_dropped() {
        let turns = Turns::new();
        let parked = turns.turn(1).park();
        assert!(turns.wait(1, 0, &mut Context::from_waker(Waker::noop())));
        drop(parked);
        assert_eq!(turns.parked(), 0);
        turns.turn(2).pass();
        let _inert = turns.turn(1).park();
        assert_eq!(turns.parked(), 0, "a turn that was passed holds nobody up");
    }

    #[test]
    fn who_asks_is_told_once_that_there_is_nothing_to_take() {
        let turns = Turns::new();
        let (waker, count) = futures_count();
        turns.idle();
        turns.turn(1).when_idle(&waker);
        turns.turn(2).when_idle(&waker);
        turns.idle();
        turns.idle();
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
        turns.turn(3).when_idle(&waker);
        turns.idle();
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[test]
    fn who_gathers_is_told_that_the_queue_is_held_up_whether_it_asks_before_or_after() {
        let turns = Turns::new();
        let (waker, count) = futures_count();
        let told = || count.load(std::sync::atomic::Ordering::Relaxed);
        turns.turn(1).when_idle(&waker);
        let stalled = turns.turn(2).stall();
        assert_eq!(told(), 1);
        turns.turn(1).when_idle(&waker);
        assert_eq!(told(), 2);
        drop(stalled);
        turns.turn(1).when_idle(&waker);
        assert_eq!(told(), 2);
        turns.turn(3).pass();
        let _inert = turns.turn(3).stall();
        assert_eq!(told(), 2, "a turn that was passed holds nobody up");
    }

    fn futures_count() -> (Waker, Arc<AtomicUsize>) {
        struct Count(Arc<AtomicUsize>);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let count = Arc::new(AtomicUsize::new(0));
        (Arc::new(Count(count.clone())).into(), count)
    }
}

#[cfg(all(test, tower_mq_loom))]
mod models {
    use loom::{future::block_on, thread};

    use super::*;

    async fn waited(turns: &Turns, sequence: u64) {
        std::future::poll_fn(|cx| match turns.wait(sequence, 0, cx) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        })
        .await;
    }

    /// `block_on` hangs, and loom says so, if a wake-up is lost.
    #[test]
    fn a_pass_is_never_missed() {
        loom::model(|| {
            let turns = Turns::new();
            let turn = turns.turn(1);
            let passes = thread::spawn(move || turn.pass());
            block_on(waited(&turns, 1));
            passes.join().expect("the thread passes");
        });
    }

    /// Three threads take more than a minute without a bound. Passes that undo each other show within two preemptions.
    #[test]
    fn a_stale_pass_beside_the_right_one_hides_nothing() {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(3);
        bounded.check(|| {
            let turns = Turns::new();
            let (stale, right) = (turns.turn(1), turns.turn(2));
            let threads = [thread::spawn(move || stale.pass()), thread::spawn(move || right.pass())];
            block_on(waited(&turns, 2));
            assert!(turns.is_passed(2));
            threads.into_iter().for_each(|thread| thread.join().expect("the thread passes"));
        });
    }

    #[test]
    fn a_parked_delivery_is_never_missed() {
        loom::model(|| {
            let turns = Turns::new();
            let turn = turns.turn(1);
            let parks = thread::spawn(move || turn.park());
            block_on(waited(&turns, 1));
            drop(parks.join().expect("the thread parks"));
        });
    }
}
