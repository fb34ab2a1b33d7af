//! How long to wait between tries.

use std::time::Duration;

/// How long to wait between tries: it doubles from one try to the next, up to a limit, and is then drawn by lot.
///
/// ```
/// use std::time::Duration;
/// use tower_mq_retry::Backoff;
///
/// let backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1)).without_jitter();
/// assert_eq!(backoff.delay(1), Duration::from_millis(10));
/// assert_eq!(backoff.delay(3), Duration::from_millis(40));
/// assert_eq!(backoff.delay(30), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Backoff {
    from: Duration,
    to: Duration,
    jitter: bool,
}

impl Backoff {
    /// At most `from` after the first failed try, twice as long after each further one, and never longer than `to`.
    ///
    /// With full jitter: the delay is drawn evenly between nothing and that, so that those who failed together do not
    /// come back together. See [`without_jitter`](Self::without_jitter).
    pub const fn exponential(from: Duration, to: Duration) -> Self {
        Self { from, to, jitter: true }
    }

    /// The delays themselves, drawn by nobody: for tests, and where nobody else fails at the same time.
    pub const fn without_jitter(mut self) -> Self {
        self.jitter = false;
        self
    }

    /// How long to wait after so many failed tries, counted from 1. Another one each time, with jitter.
    pub fn delay(&self, failed: u32) -> Duration {
        let doublings = failed.saturating_sub(1);
        let longest = self.from.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(self.to);
        match self.jitter {
            true => longest.mul_f64(fastrand::f64()),
            false => longest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_never_overflows() {
        let backoff = Backoff::exponential(10 * MS, 100 * MS).without_jitter();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|n| backoff.delay(n)), [10, 10, 20, 40, 80, 100].map(|n| n * MS));
        let endless = Backoff::exponential(Duration::from_secs(u64::MAX / 2), Duration::MAX).without_jitter();
        assert_eq!([32, 33, 500, u32::MAX].map(|n| endless.delay(n)), [Duration::MAX; 4]);
        let crossed = Backoff::exponential(100 * MS, 10 * MS).without_jitter();
        assert_eq!(crossed.delay(1), 10 * MS, "the limit is a limit");
    }

    #[test]
    fn jitter_is_full_even_and_within_its_bounds() {
        fastrand::seed(7);
        let backoff = Backoff::exponential(10 * MS, 1_000 * MS);
        for (failed, longest) in [(1, 10), (3, 40), (20, 1_000)] {
            let longest = longest * MS;
            let drawn: Vec<_> = (0..4_000).map(|_| backoff.delay(failed)).collect();
            assert!(drawn.iter().all(|delay| *delay <= longest));
            let in_quarter = |n: u32| {
                let quarter = longest * n / 4..longest * (n + 1) / 4;
                drawn.iter().filter(|delay| quarter.contains(delay)).count()
            };
            assert!((0..4).all(|n| (850..1_150).contains(&in_quarter(n))), "each quarter has its share");
        }
    }
}
