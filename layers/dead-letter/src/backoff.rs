//! How long to pause after a try that failed.

use std::time::Duration;

/// Doubles from one duration up to another. Half of each pause is left to chance, so that those who failed together do not
/// come back together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl Backoff {
    /// The pause after so many tries, from 1, have failed.
    pub(crate) fn pause(self, failed: u32) -> Duration {
        let doubled = 1u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.from.saturating_mul(doubled).min(self.to);
        let half = whole / 2;
        half + half.mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_limit_and_half_of_it_is_left_to_chance() {
        let backoff = Backoff { from: Duration::from_millis(100), to: Duration::from_secs(1) };
        for (failed, most) in
            [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (40, 1000), (u32::MAX, 1000)]
        {
            let pauses: Vec<_> = (0..64).map(|_| backoff.pause(failed)).collect();
            let most = Duration::from_millis(most);
            assert!(pauses.iter().all(|pause| (most / 2..=most).contains(pause)), "{failed}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{failed}: no chance");
        }
    }

    #[test]
    fn no_pause_and_an_endless_one_are_pauses_too() {
        assert_eq!(Backoff { from: Duration::ZERO, to: Duration::MAX }.pause(9), Duration::ZERO);
        let endless = Backoff { from: Duration::MAX, to: Duration::MAX }.pause(u32::MAX);
        assert!(endless >= Duration::MAX / 2);
    }
}
