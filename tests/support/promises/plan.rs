//! One plan for each seed: how the stack is set up, and what happens to it.

use std::time::Duration;

use fastrand::Rng;
use tower_mq::{Backoff, Delivery, Drain, PartitionLayer, RetryLayer};

use super::Rules;

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    mode: Mode,
    workers: usize,
    inline: bool,
    retry: &'static str,
    tries: u32,
    pub window: usize,
    pub limit: usize,
    /// Size, and wait; no wait: what is ready.
    pub batch: Option<(usize, Option<u64>)>,
    /// Messages at the beginning, and those that come later.
    pub letters: (usize, usize),
    /// How long a copy may take.
    pub copy_timeout: Duration,
    pub runs: Vec<Run>,
}

const IN_PLACE: &str = "in place";
const PARK: &str = "park";
const REQUEUE: &str = "requeue";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    ByKey,
    PerKey,
    Unordered,
}

/// One run of the stack, until it is told to end.
#[derive(Clone, Debug)]
pub struct Run {
    pub lasts: Duration,
    pub drain: Drain,
    pub drain_timeout: Duration,
    /// In a new process: what Dedup knew is gone.
    pub anew: bool,
}

impl Plan {
    pub fn new(seed: u64, batches: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let run = |random: &mut Rng| Run {
            lasts: Duration::from_millis(random.u64(1..400)),
            drain: if random.bool() { Drain::Finish } else { Drain::Release },
            drain_timeout: Duration::from_millis([10, 100, 10_000][random.usize(0..3)]),
            anew: random.u8(0..4) == 0,
        };
        Self {
            seed,
            mode: [Mode::ByKey, Mode::PerKey, Mode::Unordered][random.usize(0..3)],
            workers: random.usize(1..6),
            inline: random.bool(),
            retry: [IN_PLACE, PARK, REQUEUE][random.usize(0..3)],
            tries: random.u32(1..4),
            window: [1, 2, 8, 32][random.usize(0..4)],
            limit: random.usize(1..5),
            batch: batches.then(|| (random.usize(1..6), random.bool().then(|| random.u64(0..20)))),
            letters: (random.usize(1..30), random.usize(0..10)),
            copy_timeout: Duration::from_millis(200),
            runs: (0..random.usize(0..4)).map(|_| run(&mut random)).collect(),
        }
    }

    pub fn rules(&self, exact: bool) -> Rules {
        let ordered = self.mode != Mode::Unordered;
        // What was parked goes on beside what its worker has taken meanwhile.
        let parks = self.retry == PARK && self.mode != Mode::ByKey && !self.inline && self.batch.is_none();
        let calls = if parks { self.limit } else { self.workers.min(self.limit) };
        Rules { ordered, calls, window: self.window, exact }
    }

    pub fn partition(&self) -> PartitionLayer<Delivery> {
        let partition = match self.mode {
            Mode::ByKey => PartitionLayer::by_key(self.workers),
            Mode::PerKey => PartitionLayer::per_key(self.workers),
            Mode::Unordered => PartitionLayer::unordered(self.workers),
        };
        if self.inline { partition.inline() } else { partition }
    }

    pub fn retry(&self) -> RetryLayer {
        let backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_millis(50));
        let retry = match self.retry {
            PARK => RetryLayer::park(backoff),
            REQUEUE => RetryLayer::requeue(backoff),
            _ => RetryLayer::in_place(backoff),
        };
        retry.attempts(self.tries)
    }
}
