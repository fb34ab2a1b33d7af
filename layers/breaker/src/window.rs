//! The deliveries that are looked at.

use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Which deliveries a breaker looks at. See [`BreakerLayer::window`](crate::BreakerLayer::window).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// The last so many.
    Last(u32),
    /// Those that ended within this time.
    During(Duration),
}

impl From<u32> for Window {
    fn from(deliveries: u32) -> Self {
        Self::Last(deliveries)
    }
}

impl From<Duration> for Window {
    fn from(time: Duration) -> Self {
        Self::During(time)
    }
}

/// How many deliveries, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) all: u32,
    pub(crate) failed: u32,
}

/// What was seen, without a lock: deliveries end on any thread. Exact, as each is taken in and let go by one atomic
/// exchange; a look at it while others write may be one or two off.
#[derive(Debug)]
pub(crate) enum Record {
    Ring(Ring),
    Slices(Slices),
}

impl From<Window> for Record {
    fn from(window: Window) -> Self {
        match window {
            Window::Last(deliveries) => Self::Ring(Ring::new(deliveries)),
            Window::During(time) => Self::Slices(Slices::new(time)),
        }
    }
}

impl Record {
    /// One more.
    #[inline]
    pub(crate) fn add(&self, failed: bool) {
        match self {
            Self::Ring(ring) => ring.add(if failed { FAILED } else { GOOD }),
            Self::Slices(slices) => slices.add(failed),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        match self {
            Self::Ring(ring) => ring.seen(),
            Self::Slices(slices) => slices.seen(),
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        match self {
            Self::Ring(ring) => (0..ring.places.len()).for_each(|place| ring.put(place, EMPTY)),
            Self::Slices(slices) => slices.slices.iter().for_each(|slice| slice.store(0, Relaxed)),
        }
    }
}

const EMPTY: u8 = 0;
const GOOD: u8 = 1;
const FAILED: u8 = 2;

/// The last so many.
#[derive(Debug)]
pub(crate) struct Ring {
    places: Box<[AtomicU8]>,
    next: AtomicU32,
    // Signed: for a moment they may count what goes before what comes.
    all: AtomicI64,
    failed: AtomicI64,
}

impl Ring {
    fn new(deliveries: u32) -> Self {
        Self {
            places: (0..deliveries).map(|_| AtomicU8::new(EMPTY)).collect(),
            next: AtomicU32::new(0),
            all: AtomicI64::new(0),
            failed: AtomicI64::new(0),
        }
    }

    #[inline]
    fn add(&self, new: u8) {
        let next = self.next.fetch_add(1, Relaxed);
        self.put((next % self.places.len() as u32) as usize, new);
    }

    #[inline]
    fn put(&self, place: usize, new: u8) {
        let old = self.places[place].swap(new, Relaxed);
        if old != new {
            self.count(old, -1);
            self.count(new, 1);
        }
    }

    #[inline(never)]
    fn count(&self, what: u8, by: i64) {
        if what != EMPTY {
            self.all.fetch_add(by, Relaxed);
        }
        if what == FAILED {
            self.failed.fetch_add(by, Relaxed);
        }
    }

    fn seen(&self) -> Seen {
        let read = |count: &AtomicI64| u32::try_from(count.load(Relaxed)).unwrap_or(0);
        Seen { all: read(&self.all), failed: read(&self.failed) }
    }
}

const SLICES: u64 = 10;
const BITS: u32 = 20;
const MOST: u64 = (1 << BITS) - 1;

/// Those that ended within some time, by tenths of it.
#[derive(Debug)]
pub(crate) struct Slices {
    since: Instant,
    slice: u128,
    /// Each: the number of its tenth, how many ended in it, and how many of them failed. In 24, 20 and 20 bits.
    slices: [AtomicU64; SLICES as usize],
}

impl Slices {
    fn new(time: Duration) -> Self {
        let slice = (time.as_nanos() / u128::from(SLICES)).max(1);
        Self { since: Instant::now(), slice, slices: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The number of the present tenth, from 1, so that a slice of zeros is an old one. It comes round after sixteen
    /// million; what is that old, and was not touched since, counts once more.
    fn now(&self) -> u64 {
        let tenths = self.since.elapsed().as_nanos() / self.slice;
        (tenths % ((1 << 24) - 1)) as u64 + 1
    }

    #[inline(never)]
    fn add(&self, failed: bool) {
        let now = self.now();
        let add = |old: u64| {
            let (mut all, mut bad) = (old >> BITS & MOST, old & MOST);
            if old >> (2 * BITS) != now {
                (all, bad) = (0, 0);
            }
            if all == MOST {
                // The share is what matters.
                (all, bad) = (all / 2, bad / 2);
            }
            Some(now << (2 * BITS) | (all + 1) << BITS | (bad + u64::from(failed)))
        };
        let slice = &self.slices[(now % SLICES) as usize];
        // It never fails: the closure always gives a value.
        let _ = slice.fetch_update(Relaxed, Relaxed, add);
    }

    fn seen(&self) -> Seen {
        let now = self.now();
        let mut seen = Seen::default();
        for slice in &self.slices {
            let slice = slice.load(Relaxed);
            if now.wrapping_sub(slice >> (2 * BITS)) < SLICES {
                seen.all += (slice >> BITS & MOST) as u32;
                seen.failed += (slice & MOST) as u32;
            }
        }
        seen
    }
}

#[cfg(all(test, not(tower_mq_loom)))]
mod tests {
    use super::*;

    fn seen(all: u32, failed: u32) -> Seen {
        Seen { all, failed }
    }

    #[test]
    fn the_last_so_many_are_seen_and_no_more() {
        let record = Record::from(Window::Last(3));
        assert_eq!(record.seen(), seen(0, 0));
        let steps = [(true, 1, 1), (false, 2, 1), (true, 3, 2), (true, 3, 2), (false, 3, 2), (false, 3, 1)];
        for (failed, all, bad) in steps {
            record.add(failed);
            assert_eq!(record.seen(), seen(all, bad));
        }
        record.clear();
        assert_eq!(record.seen(), seen(0, 0));
        record.add(true);
        assert_eq!(record.seen(), seen(1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_ended_within_the_time_is_seen_and_no_more() {
        let record = Record::from(Window::During(Duration::from_secs(10)));
        let wait = |secs| tokio::time::advance(Duration::from_secs(secs));
        record.add(true);
        record.add(false);
        wait(4).await;
        record.add(true);
        assert_eq!(record.seen(), seen(3, 2));
        wait(5).await;
        assert_eq!(record.seen(), seen(3, 2));
        wait(1).await;
        assert_eq!(record.seen(), seen(1, 1), "the first two are ten seconds old");
        record.add(false);
        assert_eq!(record.seen(), seen(2, 1), "their slice is used again");
        wait(1_000).await;
        assert_eq!(record.seen(), seen(0, 0));
        record.add(true);
        record.clear();
        assert_eq!(record.seen(), seen(0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_slice_can_count_keep_their_share() {
        let record = Record::from(Window::During(Duration::from_secs(10)));
        (0..MOST + 10).for_each(|n| record.add(n % 4 == 0));
        let Seen { all, failed } = record.seen();
        let share = f64::from(failed) / f64::from(all);
        assert!((0.2499..0.2501).contains(&share), "{failed} of {all}");
    }
}

#[cfg(all(test, tower_mq_loom))]
mod models {
    use loom::{sync::Arc, thread};

    use super::*;

    /// What is counted is what is there, whoever wrote last.
    #[test]
    fn nothing_is_lost_or_counted_twice_between_threads() {
        for clears in [false, true] {
            loom::model(move || {
                let record = Arc::new(Record::from(Window::Last(1)));
                record.add(true);
                let threads = [true, false].map(|failed| {
                    let record = record.clone();
                    thread::spawn(move || match clears && !failed {
                        true => record.clear(),
                        false => record.add(failed),
                    })
                });
                threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
                let Record::Ring(ring) = &*record else { panic!("a ring") };
                let last = ring.places[0].load(Relaxed);
                let expected = Seen { all: u32::from(last != EMPTY), failed: u32::from(last == FAILED) };
                assert_eq!(record.seen(), expected);
            });
        }
    }

    #[test]
    fn a_slice_loses_nobody() {
        loom::model(|| {
            let record = Arc::new(Record::from(Window::During(Duration::from_secs(3_600))));
            let adds = record.clone();
            let thread = thread::spawn(move || adds.add(true));
            record.add(false);
            thread.join().expect("it does not panic");
            assert_eq!(record.seen(), Seen { all: 2, failed: 1 });
        });
    }
}
