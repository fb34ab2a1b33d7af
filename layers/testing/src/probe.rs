//! What became of one delivery.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tower_mq_delivery::{
    Acker, Delivery, Event, Generation, Message, Outcome, Settle, SettleError, Settlement, Settling, Token,
};

use crate::reply::{Reply, When};

/// A delivery that no source made, and its probe.
pub fn delivery(message: Message) -> (Delivery, Probe) {
    let probe = Probe::default();
    let duty = Duty { probe: probe.clone(), generation: message.generation().clone(), place: None };
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
    /// What its settlement is answered.
    reply: Option<Reply>,
    told: Option<Result<Settlement, SettleError>>,
    held: Option<Held>,
    /// What was handed out, by a scripted source.
    message: Option<Message>,
    /// Of the next delivery of the same message.
    again: Option<Probe>,
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

    /// What its source answered to its settlement, as soon as it has: see [`reply_with`](Self::reply_with).
    pub fn told(&self) -> Option<Result<Settlement, SettleError>> {
        self.0.seen.lock().told.clone()
    }

    /// From now on, what its settlement is answered. Default: that it is confirmed, or what the script says.
    pub fn reply_with(&self, reply: Reply) {
        self.0.seen.lock().reply = Some(reply);
    }

    /// Gives the answer to a settlement that is [held](Reply::held). `false`: there is none, or its generation has ended.
    pub fn let_through(&self) -> bool {
        let held = self.0.seen.lock().held.take();
        held.is_some_and(|held| held.tell(self))
    }

    /// The next delivery of its message, if a script lets it come again ([`Script::disconnect`](crate::Script::disconnect),
    /// [`Script::deliver_again`](crate::Script::deliver_again)).
    pub fn again(&self) -> Option<Self> {
        self.0.seen.lock().again.clone()
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

    pub(crate) fn taken(&self, message: Message) {
        let mut seen = self.0.seen.lock();
        (seen.taken, seen.message) = (Some(Instant::now()), Some(message));
    }

    /// Whether it is a clone of that one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What was handed out.
    pub(crate) fn message(&self) -> Option<Message> {
        self.0.seen.lock().message.clone()
    }

    /// Its message comes again: the probe of that.
    pub(crate) fn comes_again(&self) -> Self {
        let next = Self::default();
        // The last one that is known of goes before it.
        let mut last = self.clone();
        while let Some(again) = last.again() {
            last = again;
        }
        last.0.seen.lock().again = Some(next.clone());
        next
    }

    /// Its connection is gone: nobody will answer.
    pub(crate) fn cut(&self) {
        let held = self.0.seen.lock().held.take();
        if let Some(held) = held {
            held.tell(self);
        }
    }

    fn answered(&self, told: Result<Settlement, SettleError>) {
        self.0.seen.lock().told = Some(told);
        self.0.changed.notify_waiters();
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

/// How far a delivery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It reached its source.
    Decided,
    /// Its source has answered: it is done with.
    Told,
}

/// Where a delivery comes from.
pub(crate) trait Place: Send + Sync {
    /// What settlements are answered there.
    fn reply(&self) -> Option<Reply>;

    /// A delivery from there has come so far.
    fn reached(&self, stage: Stage);
}

/// Settles one delivery: tells its probe.
pub(crate) struct Duty {
    pub(crate) probe: Probe,
    pub(crate) generation: Arc<Generation>,
    pub(crate) place: Option<Arc<dyn Place>>,
}

impl Duty {
    fn reached(&self, outcome: Option<Outcome>) -> Settling {
        let stale = self.generation.is_over();
        let Reply { told, when } = match (&outcome, stale) {
            (_, true) => Reply::stale(),
            (None, _) => Reply::confirmed(),
            (Some(_), _) => self.reply(),
        };
        let settlement = match (&told, when) {
            (Ok(settlement), When::Now) => *settlement,
            _ => Settlement::HandedOver,
        };
        self.generation.origin().report(&match &outcome {
            Some(outcome) => Event::Settled { outcome, settlement },
            None => Event::Dropped,
        });
        self.probe.reached(outcome, stale);
        if let Some(place) = &self.place {
            place.reached(Stage::Decided);
        }
        let (sender, settling) = Settling::pending();
        let generation = self.generation.clone();
        let held = Held { sender, told: told.clone(), generation, place: self.place.clone() };
        match when {
            When::Now => {
                held.tell(&self.probe);
                return Settling::done(told);
            }
            When::After(time) => {
                let probe = self.probe.clone();
                tokio::spawn(async move {
                    // Either way: told says whether it is too late.
                    let _ended = tokio::time::timeout(time, held.generation.over()).await;
                    held.tell(&probe);
                });
            }
            When::LetThrough => self.probe.0.seen.lock().held = Some(held),
        }
        settling
    }

    fn reply(&self) -> Reply {
        let of_probe = self.probe.0.seen.lock().reply.clone();
        of_probe.or_else(|| self.place.as_ref()?.reply()).unwrap_or(Reply::confirmed())
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

/// An answer that is still to be given.
struct Held {
    sender: oneshot::Sender<Result<Settlement, SettleError>>,
    told: Result<Settlement, SettleError>,
    generation: Arc<Generation>,
    place: Option<Arc<dyn Place>>,
}

impl Held {
    /// `false`: its generation has ended.
    fn tell(self, probe: &Probe) -> bool {
        let stale = matches!(self.told, Ok(Settlement::Stale));
        let in_time = stale || !self.generation.is_over();
        let told = if in_time { self.told } else { Err(SettleError::Ended) };
        probe.answered(told.clone());
        if let Some(place) = &self.place {
            place.reached(Stage::Told);
        }
        // Nobody may want to know.
        let _ = self.sender.send(told);
        in_time
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.told).finish()
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
