//! What became of the deliveries of one driver, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Outcome, Settlement, Settling};

/// Counts what became of the deliveries that one driver took.
#[derive(Debug, Default)]
pub struct Tally {
    taken: AtomicU64,
    settled: [AtomicU64; 5],
    stale: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    pub(crate) const DROPPED: usize = 4;

    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn take(&self) {
        Self::add(&self.taken);
    }

    pub(crate) fn index(outcome: &Outcome) -> usize {
        match outcome {
            Outcome::Ack => 0,
            Outcome::Release => 1,
            Outcome::Retry { .. } => 2,
            Outcome::Reject { .. } => 3,
        }
    }

    // A decision that reached nobody is not counted under its name: the message comes again.
    pub(crate) fn count(&self, settling: &Settling, index: usize) {
        match settling.known() {
            Some(Ok(Settlement::Stale | Settlement::LeaseLost)) => Self::add(&self.stale),
            Some(Err(_)) => Self::add(&self.failed),
            _ => Self::add(&self.settled[index]),
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [acked, released, retried, rejected, dropped] = self.settled.each_ref().map(read);
        let (taken, stale, failed) = (read(&self.taken), read(&self.stale), read(&self.failed));
        Counts { taken, acked, released, retried, rejected, dropped, stale, failed }
    }
}

/// How many deliveries were taken, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Taken from the source.
    pub taken: u64,
    /// Settled with [`Outcome::Ack`].
    pub acked: u64,
    /// Settled with [`Outcome::Release`].
    pub released: u64,
    /// Settled with [`Outcome::Retry`].
    pub retried: u64,
    /// Settled with [`Outcome::Reject`].
    pub rejected: u64,
    /// Dropped without a decision, and so released.
    pub dropped: u64,
    /// Decided after their generation or lease had ended: nothing was sent, the message comes again.
    pub stale: u64,
    /// Decided, and the source could not pass it on.
    pub failed: u64,
}

impl Counts {
    /// Taken, and nothing is decided yet.
    pub fn open(&self) -> u64 {
        let settled = self.acked
            + self.released
            + self.retried
            + self.rejected
            + self.dropped
            + self.stale
            + self.failed;
        self.taken.saturating_sub(settled)
    }
}
