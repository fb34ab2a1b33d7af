//! What became of one delivery.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tower_mq_delivery::{
    Acker, Delivery, Event, Generation, Message, Outcome, Settle, Settlement, Settling, Token,
};

/// A delivery that no source made, and its probe.
pub fn delivery(message: Message) -> (Delivery, Probe) {
    let probe = Probe::default();
    let duty = Duty { probe: probe.clone(), generation: message.generation().clone(), settled: None };
    (Delivery::new(message, Acker::new(Arc::new(duty), 0)), probe)
}

/// Tells what became of one delivery. Clones tell the same.
#[derive(Clone, Debug, Default)]
pub struct Probe(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    taken: Option<Instant>,
    settled: Option<(Outcome, Instant)>,
    dropped: Option<Instant>,
    stale: bool,
    times: usize,
}

impl Probe {
    /// What was decided, if it was decided. A delivery that was dropped was not decided.
    pub fn outcome(&self) -> Option<Outcome> {
        self.0.seen.lock().settled.as_ref().map(|(outcome, _)| outcome.clone())
    }

    /// How often it reached its source, settled or dropped. More than once is a fault.
    pub fn times(&self) -> usize {
        self.0.seen.lock().times
    }

    /// It was dropped without a decision, and so released.
    pub fn is_dropped(&self) -> bool {
        self.0.seen.lock().dropped.is_some()
    }

    /// It reached its source after its generation had ended.
    pub fn is_stale(&self) -> bool {
        self.0.seen.lock().stale
    }

    /// When it was handed out by a scripted source.
    pub fn taken_at(&self) -> Option<Instant> {
        self.0.seen.lock().taken
    }

    /// When it was settled or dropped.
    pub fn settled_at(&self) -> Option<Instant> {
        let seen = self.0.seen.lock();
        seen.settled.as_ref().map(|(_, at)| *at).or(seen.dropped)
    }

    /// Waits until it is settled, or dropped: `None`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settled(&self) -> Option<Outcome> {
        loop {
            // Made before the look: a `Notified` hears what is said from its creation on.
            let changed = self.0.changed.notified();
            if self.times() > 0 {
                return self.outcome();
            }
            changed.await;
        }
    }

    /// Panics unless it was settled once, with this outcome. [`assert_settled!`](crate::assert_settled) takes a
    /// pattern.
    ///
    /// # Panics
    /// See above.
    #[track_caller]
    pub fn assert_settled(&self, outcome: &Outcome) {
        self.assert(|settled| settled == outcome, &format_args!("{outcome:?}"));
    }

    /// Panics unless nothing was decided, and it was not dropped.
    ///
    /// # Panics
    /// See above.
    #[track_caller]
    pub fn assert_unsettled(&self) {
        assert!(self.times() == 0, "expected a delivery that is not settled, found one {}", self.tell());
    }

    /// Panics unless it was dropped, once, without a decision.
    ///
    /// # Panics
    /// See above.
    #[track_caller]
    pub fn assert_dropped(&self) {
        let right = self.is_dropped() && self.times() == 1;
        assert!(right, "expected a delivery that was dropped, found one {}", self.tell());
    }

    #[doc(hidden)]
    #[track_caller]
    pub fn assert(&self, right: impl FnOnce(&Outcome) -> bool, expected: &dyn std::fmt::Display) {
        let right = self.times() == 1 && self.outcome().as_ref().is_some_and(right);
        assert!(
            right,
            "expected a delivery that was settled once with `{expected}`, found one {}",
            self.tell()
        );
    }

    fn tell(&self) -> String {
        let seen = self.0.seen.lock();
        let stale = if seen.stale { ", after its generation had ended" } else { "" };
        match (&seen.settled, seen.times) {
            (_, 0) => "that is not settled".to_owned(),
            (None, 1) => format!("that was dropped{stale}"),
            (Some((outcome, _)), 1) => format!("that was settled with `{outcome:?}`{stale}"),
            (last, times) => format!("that reached its source {times} times, last {last:?}{stale}"),
        }
    }

    pub(crate) fn taken(&self) {
        self.0.seen.lock().taken = Some(Instant::now());
    }

    fn reached(&self, outcome: Option<Outcome>, stale: bool) {
        {
            let mut seen = self.0.seen.lock();
            let now = Instant::now();
            seen.times += 1;
            seen.stale = stale;
            match outcome {
                Some(outcome) => seen.settled = Some((outcome, now)),
                None => seen.dropped = Some(now),
            }
        }
        self.0.changed.notify_waiters();
    }
}

/// What is told when a delivery is done with.
pub(crate) type Done = Box<dyn Fn() + Send + Sync>;

/// Settles one delivery: tells its probe.
pub(crate) struct Duty {
    pub(crate) probe: Probe,
    pub(crate) generation: Arc<Generation>,
    pub(crate) settled: Option<Done>,
}

impl Duty {
    fn reached(&self, outcome: Option<Outcome>) -> Settling {
        let stale = self.generation.is_over();
        let settlement = if stale { Settlement::Stale } else { Settlement::Confirmed };
        self.generation.origin().report(&match &outcome {
            Some(outcome) => Event::Settled { outcome, settlement },
            None => Event::Dropped,
        });
        self.probe.reached(outcome, stale);
        if let Some(settled) = &self.settled {
            settled();
        }
        Settling::done(Ok(settlement))
    }
}

impl Settle for Duty {
    fn settle(&self, _: Token, outcome: Outcome) -> Settling {
        self.reached(Some(outcome))
    }

    fn dropped(&self, _: Token) -> Settling {
        self.reached(None)
    }
}

/// Panics unless the delivery of this [`Probe`] was settled once, with an outcome of this pattern.
///
/// ```
/// use tower_mq_delivery::{Message, Outcome};
/// use tower_mq_testing::{assert_settled, delivery};
///
/// let (order, probe) = delivery(Message::new("two teas"));
/// let _ = order.settle(Outcome::reject("no tea"));
/// assert_settled!(probe, Outcome::Reject { .. });
/// assert_settled!(probe, Outcome::Reject { reason } if reason.contains("tea"));
/// ```
#[macro_export]
macro_rules! assert_settled {
    ($probe:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        $probe.assert(
            |outcome| matches!(outcome, $pattern $(if $guard)?),
            &stringify!($pattern $(if $guard)?),
        )
    };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_probe_tells_what_and_when() {
        let (order, probe) = delivery(Message::new("a"));
        probe.assert_unsettled();
        let waits = tokio::spawn({
            let probe = probe.clone();
            async move { probe.settled().await }
        });
        tokio::time::advance(Duration::from_secs(3)).await;
        let settling = order.settle(Outcome::Release);
        assert_eq!(settling.now().expect("it is told"), Settlement::Confirmed);
        assert_eq!(waits.await.expect("it does not panic"), Some(Outcome::Release));
        assert_eq!((probe.times(), probe.settled_at()), (1, Some(Instant::now())));
        probe.assert_settled(&Outcome::Release);
        assert_settled!(probe, Outcome::Release | Outcome::Ack);
    }

    #[test]
    #[should_panic(expected = "settled once with `Outcome::Ack`, found one that was settled with `Release`")]
    fn another_outcome_is_a_failure_that_tells_both() {
        let (order, probe) = delivery(Message::new("a"));
        let _settling = order.settle(Outcome::Release);
        assert_settled!(probe, Outcome::Ack);
    }

    #[test]
    #[should_panic(expected = "found one that was dropped")]
    fn dropped_is_not_settled() {
        let (order, probe) = delivery(Message::new("a"));
        drop(order);
        probe.assert_dropped();
        assert_settled!(probe, Outcome::Release);
    }

    #[test]
    fn a_settlement_after_the_end_of_its_generation_is_stale() {
        let origin = tower_mq_delivery::Origin::new("test", "test", 1, Default::default());
        let generation = Generation::first(Arc::new(origin));
        let (order, probe) = delivery(Message::builder("a").generation(generation.clone()).build());
        generation.end();
        assert_eq!(order.settle(Outcome::Ack).now().expect("it is told"), Settlement::Stale);
        assert!(probe.is_stale());
    }
}
