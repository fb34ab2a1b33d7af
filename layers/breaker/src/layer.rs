//! The layer: plain configuration.

use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;
use tower_mq_delivery::Outcome;

use crate::{Breaker, Window, circuit::Circuitry};

/// Pauses a queue while too many of its deliveries fail. See the [crate's docs](crate).
///
/// # Order
/// Outside Partition and Settle.
#[derive(Clone)]
#[must_use]
pub struct BreakerLayer {
    threshold: f64,
    window: Window,
    minimum: Option<u32>,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    jitter: bool,
    failure_if: Option<Arc<FailureIf>>,
}

type FailureIf = dyn Fn(&Outcome) -> bool + Send + Sync;

/// What a delivery that has come to its end says of those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// Nothing: nobody worked on it to the end.
    Neither,
}

/// Of these many deliveries at least, unless the user says otherwise or the window is smaller.
const MINIMUM: u32 = 10;

impl BreakerLayer {
    /// Pauses for 1 s to 60 s when half of the last 100 deliveries have failed, and 10 at least have been seen.
    pub const fn new() -> Self {
        Self {
            threshold: 0.5,
            window: Window::Last(100),
            minimum: None,
            from: Duration::from_secs(1),
            to: Duration::from_secs(60),
            jitter: true,
            failure_if: None,
        }
    }

    /// The share of failed deliveries that it takes to pause. Default: 0.5.
    ///
    /// # Panics
    /// If `share` is not between 0 and 1.
    #[track_caller]
    pub const fn threshold(mut self, share: f64) -> Self {
        assert!(share > 0.0 && share <= 1.0, "`BreakerLayer::threshold` is a share: above 0, and at most 1");
        self.threshold = share;
        self
    }

    /// Which deliveries are looked at: a number, the last so many, or a [`Duration`], those that ended within that time.
    /// Default: the last 100.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_mq_breaker::BreakerLayer;
    ///
    /// let last_five_hundred = BreakerLayer::new().window(500);
    /// let last_minute = BreakerLayer::new().window(Duration::from_secs(60));
    /// # let _ = (last_five_hundred, last_minute);
    /// ```
    ///
    /// The time goes on in steps of a tenth. A look at the clock is added to the cost of each delivery. A
    /// number is one allocation, a byte for each, when a service is made.
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    pub fn window(mut self, window: impl Into<Window>) -> Self {
        self.window = window.into();
        let empty = matches!(self.window, Window::Last(0) | Window::During(Duration::ZERO));
        assert!(!empty, "`BreakerLayer::window` of 0 would never see a delivery");
        self
    }

    /// Fewer deliveries than this in the window prove nothing. Default: 10, or the window if that is smaller.
    ///
    /// More than the window holds are refused when the layer is used.
    pub const fn minimum(mut self, deliveries: u32) -> Self {
        self.minimum = Some(deliveries);
        self
    }

    /// How long to pause: `from` at first, twice as long each time that the delivery sent to probe fails, and never
    /// longer than `to`. Default: 1 s to 60 s.
    ///
    /// With jitter: it is drawn between half of that and all of it, so that many consumers do not probe at once. See
    /// [`without_jitter`](Self::without_jitter).
    pub const fn pause(mut self, from: Duration, to: Duration) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// Pauses exactly as long as [`pause`](Self::pause) says: for tests, or for a single consumer.
    pub const fn without_jitter(mut self) -> Self {
        self.jitter = false;
        self
    }

    /// Which outcomes are failures. Default: [`Retry`](Outcome::Retry) and [`Reject`](Outcome::Reject).
    ///
    /// An error of the inner service, and a panic, always is one. A [`Release`](Outcome::Release) that is none says
    /// nothing, and is not counted at all: its message was not worked on to the end.
    ///
    /// ```
    /// use tower_mq_breaker::BreakerLayer;
    /// use tower_mq_delivery::Outcome;
    ///
    /// // Messages that can never be handled are their producer's fault. Handlers release when a service is down.
    /// let breaker = BreakerLayer::new()
    ///     .failure_if(|outcome| matches!(outcome, Outcome::Retry { .. } | Outcome::Release));
    /// # let _ = breaker;
    /// ```
    pub fn failure_if(mut self, failure_if: impl Fn(&Outcome) -> bool + Send + Sync + 'static) -> Self {
        self.failure_if = Some(Arc::new(failure_if));
        self
    }

    /// `None`: the response shows no outcome.
    #[inline]
    pub(crate) fn verdict(&self, outcome: Option<&Outcome>) -> Verdict {
        match outcome {
            None => Verdict::Good,
            // By far the most.
            Some(Outcome::Ack) if self.failure_if.is_none() => Verdict::Good,
            Some(outcome) => self.weigh(outcome),
        }
    }

    #[inline(never)]
    fn weigh(&self, outcome: &Outcome) -> Verdict {
        let failed = match &self.failure_if {
            Some(failure_if) => failure_if(outcome),
            None => matches!(outcome, Outcome::Retry { .. } | Outcome::Reject { .. }),
        };
        match outcome {
            _ if failed => Verdict::Bad,
            Outcome::Release => Verdict::Neither,
            _ => Verdict::Good,
        }
    }

    /// Whether so many failures are too many.
    pub(crate) fn is_too_bad(&self, failed: u32, of: u32) -> bool {
        of >= self.least() && f64::from(failed) >= self.threshold * f64::from(of)
    }

    /// How long to pause for the `n`th time in a row, from 1.
    pub(crate) fn rest(&self, n: u32) -> Duration {
        let doubled = 1u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX);
        let longest = self.from.saturating_mul(doubled).min(self.to);
        match self.jitter {
            true => longest.mul_f64(f64::midpoint(1.0, fastrand::f64())),
            false => longest,
        }
    }

    fn least(&self) -> u32 {
        match (self.minimum, self.window) {
            (Some(minimum), _) => minimum.max(1),
            (None, Window::Last(window)) => MINIMUM.min(window),
            (None, Window::During(_)) => MINIMUM,
        }
    }
}

impl Default for BreakerLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for BreakerLayer {
    type Service = Breaker<S>;

    /// # Panics
    /// If [`minimum`](BreakerLayer::minimum) is more than [`window`](BreakerLayer::window) holds.
    fn layer(&self, inner: S) -> Breaker<S> {
        if let (Some(minimum), Window::Last(window)) = (self.minimum, self.window) {
            assert!(
                minimum <= window,
                "`BreakerLayer::minimum` of {minimum} is never reached by a `window` of the last {window}"
            );
        }
        Breaker::new(inner, Arc::new(Circuitry::new(self.clone(), self.window.into())))
    }
}

impl fmt::Debug for BreakerLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerLayer")
            .field("threshold", &self.threshold)
            .field("window", &self.window)
            .field("minimum", &self.least())
            .field("pause", &(self.from, self.to))
            .field("jitter", &self.jitter)
            .field("failure_if", &self.failure_if.is_some())
            .finish()
    }
}
