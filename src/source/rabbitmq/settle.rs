//! What is taken on one connection, what is decided of it, and when the broker is told.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tower_mq_delivery::{Event, Generation, Outcome, Settle, Settlement, Settling, Token};

use super::{
    OnReject,
    tried::{Fingerprint, Tried},
};
use crate::source::{
    Control,
    ledger::{
        Ledger,
        multiple::{Frame, next_frame},
    },
};

/// At most this many frames are under way at a time: a quorum queue keeps further settlements to itself, and loses
/// them when the channel ends.
pub(super) const MOST_FRAMES: usize = 32;
/// The front of the window is told when this many are decided, or a quarter of the window.
const BATCH: usize = 64;
/// The front of the window is told when a decision is this old.
const AGE: Duration = Duration::from_millis(5);
/// What is decided behind an undecided delivery costs a frame of its own, so it waits longer.
const AGE_BEHIND: Duration = Duration::from_millis(50);
/// A reject without a target comes again. Not faster than this, or a message that nobody wants would spin.
const REJECT_PACE: Duration = Duration::from_secs(1);

/// What the broker knows a delivery by, and what is known of its attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) tag: u64,
    /// Absent where the broker counts attempts.
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) attempt: u32,
    pub(super) redelivered: bool,
}

/// Takes the decisions on the deliveries of one generation, from any thread.
pub(super) struct Settler {
    generation: Arc<Generation>,
    control: Control,
    tried: Arc<Tried>,
    on_reject: Option<OnReject>,
    batch: usize,
    posted: Notify,
    state: Mutex<State>,
}

struct State {
    ledger: Ledger<Taken>,
    /// Retries that wait for their time. Undecided for the ledger: they keep their places.
    held: BTreeSet<(Instant, Token)>,
    /// Undecided for ever: the end of the connection gives them back.
    left: usize,
    /// When the oldest of what is decided was decided, as far as the front of the window is concerned.
    front_since: Option<Instant>,
    behind_since: Option<Instant>,
    ended: bool,
    closing: bool,
}

impl State {
    /// Nobody is at work on a delivery.
    fn is_idle(&self) -> bool {
        self.ledger.open() == self.held.len() + self.left
    }
}

impl Settler {
    pub(super) fn new(
        generation: Arc<Generation>,
        control: Control,
        tried: Arc<Tried>,
        on_reject: Option<OnReject>,
    ) -> Self {
        let window = control.origin().window();
        let state = State {
            ledger: Ledger::new(window),
            held: BTreeSet::new(),
            left: 0,
            front_since: None,
            behind_since: None,
            ended: false,
            closing: false,
        };
        let (posted, state) = (Notify::new(), Mutex::new(state));
        Self { generation, control, tried, on_reject, batch: BATCH.min(window / 4).max(1), posted, state }
    }

    pub(super) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Takes a delivery. `None`: the broker has sent more than the window.
    pub(super) fn take(&self, taken: Taken) -> Option<Token> {
        self.state.lock().ledger.take(taken)
    }

    /// Waits until it is worth asking for [`frames`](Self::frames).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn posted(&self) {
        self.posted.notified().await;
    }

    /// The frames to send now, in this order, without interruption.
    pub(super) fn frames(&self, now: Instant) -> Vec<Frame<Taken>> {
        let mut frames = Vec::new();
        let mut state = self.state.lock();
        while let Some((due, token)) = state.held.first().copied()
            && due <= now
        {
            state.held.pop_first();
            state.ledger.decide(token, Outcome::Release);
            state.decided(now);
        }
        let aged = |since: Option<Instant>, age| since.is_some_and(|since| now >= since + age);
        let decided = state.ledger.decided();
        let behind = state.is_idle()
            || 2 * decided >= self.control.origin().window()
            || aged(state.behind_since, AGE_BEHIND);
        if decided == 0 || !(behind || decided >= self.batch || aged(state.front_since, AGE)) {
            return frames;
        }
        while frames.len() < MOST_FRAMES {
            let Some(frame) = next_frame(&mut state.ledger, behind) else {
                state.front_since = Some(now);
                break;
            };
            frames.push(frame);
        }
        if state.ledger.decided() == 0 {
            (state.front_since, state.behind_since) = (None, None);
        }
        frames
    }

    /// When to ask for [`frames`](Self::frames) again, if nothing is posted before.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.state.lock();
        let held = state.held.first().map(|(due, _)| *due);
        let front = state.front_since.map(|since| since + AGE);
        let behind = state.behind_since.map(|since| since + AGE_BEHIND);
        [held, front, behind].into_iter().flatten().min()
    }

    /// The connection is about to be closed: whatever is not told by then goes back with it, in the queue's order.
    /// `waiting`: how many were taken and never handed out.
    pub(super) fn close(&self, waiting: usize) {
        let mut state = self.state.lock();
        state.closing = true;
        state.left += state.held.len() + waiting;
        state.held.clear();
    }

    /// Whether everything is decided, and the broker was told of all that can be told.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.is_idle() && state.ledger.decided() == 0
    }

    /// The connection is gone: what is decided from now on is stale.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.held.clear();
        drop(state);
        self.generation.end();
    }

    fn post(&self, token: Token, outcome: &Outcome) -> Settlement {
        let mut state = self.state.lock();
        if state.ended {
            return Settlement::Stale;
        }
        let Some(taken) = state.ledger.get(token).copied() else { return Settlement::Stale };
        let hold = match outcome {
            Outcome::Ack => None,
            Outcome::Reject { .. } if self.on_reject.is_some() => None,
            Outcome::Reject { .. } => Some(REJECT_PACE),
            Outcome::Retry { after } => Some(*after),
            _ => Some(Duration::ZERO),
        };
        match hold {
            None => {
                state.ledger.decide(token, outcome.clone());
                state.decided(Instant::now());
            }
            // Asked for is enough: the task that closes may not have heard of it yet.
            Some(_) if state.closing || self.control.demand().is_close() => state.left += 1,
            Some(Duration::ZERO) => {
                state.ledger.decide(token, Outcome::Release);
                state.decided(Instant::now());
            }
            Some(after) => {
                // A time that no clock can show is far enough away.
                let far = Duration::from_secs(365 * 24 * 3600);
                state.held.insert((Instant::now() + after.min(far), token));
            }
        }
        let decided = state.ledger.decided();
        let wake = hold.is_some() || decided == 1 || decided.is_multiple_of(self.batch) || state.is_idle();
        drop(state);
        self.remember(&taken, outcome);
        if wake {
            self.posted.notify_one();
        }
        Settlement::HandedOver
    }

    fn remember(&self, taken: &Taken, outcome: &Outcome) {
        let Some(fingerprint) = taken.fingerprint else { return };
        match outcome {
            Outcome::Retry { .. } => self.tried.failed(fingerprint, taken.attempt),
            Outcome::Ack | Outcome::Reject { .. } if taken.redelivered => self.tried.forget(fingerprint),
            _ => {}
        }
    }

    #[cold]
    fn replaced(&self, decided: &Outcome) {
        let told = Outcome::Release;
        self.control.origin().report(&Event::Replaced { decided, told: &told });
        self.control.origin().warn(
            "a message was rejected, and it is not said what the broker does with rejects: it comes again. Set \
             `on_reject`, or stack a dead-letter layer",
        );
    }
}

impl State {
    fn decided(&mut self, now: Instant) {
        self.front_since.get_or_insert(now);
        self.behind_since.get_or_insert(now);
    }
}

impl Settle for Settler {
    fn settle(&self, token: Token, outcome: Outcome) -> Settling {
        let settlement = self.post(token, &outcome);
        let origin = self.control.origin();
        if settlement == Settlement::Stale {
            tracing::debug!(
                source = origin.name(),
                generation = self.generation.number(),
                outcome = outcome.name(),
                "decided after its connection had ended: the broker is not told, the message comes again"
            );
        } else if matches!(outcome, Outcome::Reject { .. }) && self.on_reject.is_none() {
            self.replaced(&outcome);
        }
        origin.report(&Event::Settled { outcome: &outcome, settlement });
        Settling::done(Ok(settlement))
    }

    fn dropped(&self, token: Token) -> Settling {
        let settlement = self.post(token, &Outcome::Release);
        self.control.origin().report(&Event::Dropped);
        Settling::done(Ok(settlement))
    }
}

/// What is not acked, as the broker is told: whether it comes again.
pub(super) fn requeues(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::Reject { .. })
}

#[cfg(test)]
mod tests {
    use tower_mq_delivery::{Capabilities, Drain, Origin};

    use super::*;

    fn settler(window: usize, on_reject: Option<OnReject>) -> Settler {
        let origin = Arc::new(Origin::new("orders", "rabbitmq", window, Capabilities::unknown()));
        let generation = Generation::first(origin.clone());
        Settler::new(generation, Control::new(origin), Arc::new(Tried::new(window)), on_reject)
    }

    fn take(settler: &Settler, count: u64) -> Vec<Token> {
        let fingerprint = Some(Fingerprint::of(None, &"x".into(), None));
        let taken = |tag| Taken { tag, fingerprint, attempt: 1, redelivered: false };
        (1..=count).map(|tag| settler.take(taken(tag)).expect("there is room")).collect()
    }

    fn settle(settler: &Settler, token: Token, outcome: Outcome) -> Settlement {
        settler.settle(token, outcome).now().expect("nothing is refused")
    }

    /// What the broker is told, as `ack 3`, `ack ..3`, `requeue 3`, `reject 3`.
    fn told(settler: &Settler) -> Vec<String> {
        let frames = settler.frames(Instant::now()).into_iter();
        let say = |frame: Frame<Taken>| match frame {
            Frame::Ack { tag, multiple: true } => format!("ack ..{}", tag.tag),
            Frame::Ack { tag, multiple: false } => format!("ack {}", tag.tag),
            Frame::Negative { tag, outcome } if requeues(&outcome) => format!("requeue {}", tag.tag),
            Frame::Negative { tag, .. } => format!("reject {}", tag.tag),
        };
        frames.map(say).collect()
    }

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn acks_are_told_together_when_nobody_is_at_work() {
        let settler = settler(256, None);
        let tokens = take(&settler, 3);
        settle(&settler, tokens[0], Outcome::Ack);
        settle(&settler, tokens[1], Outcome::Ack);
        assert!(told(&settler).is_empty(), "one is still at work, and may finish soon");
        settle(&settler, tokens[2], Outcome::Ack);
        assert_eq!(told(&settler), ["ack ..3"]);
        assert!(settler.is_done() && settler.due().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn acks_are_told_by_number_and_by_age_while_others_are_at_work() {
        let settler = settler(256, None);
        let tokens = take(&settler, 100);
        for token in &tokens[..63] {
            settle(&settler, *token, Outcome::Ack);
        }
        assert!(told(&settler).is_empty());
        settle(&settler, tokens[63], Outcome::Ack);
        assert_eq!(told(&settler), ["ack ..64"]);
        settle(&settler, tokens[64], Outcome::Ack);
        assert!(told(&settler).is_empty());
        assert_eq!(settler.due(), Some(Instant::now() + AGE));
        pass(AGE).await;
        assert_eq!(told(&settler), ["ack 65"]);
    }

    #[tokio::test(start_paused = true)]
    async fn behind_a_stuck_one_acks_are_told_singly_but_not_at_once() {
        let settler = settler(16, None);
        let tokens = take(&settler, 6);
        for token in &tokens[1..5] {
            settle(&settler, *token, Outcome::Ack);
        }
        assert!(told(&settler).is_empty());
        pass(AGE).await;
        assert!(told(&settler).is_empty(), "the first may finish soon, and then one frame is enough");
        pass(AGE_BEHIND).await;
        assert_eq!(told(&settler), ["ack 2", "ack 3", "ack 4", "ack 5"]);
        settle(&settler, tokens[5], Outcome::Ack);
        settle(&settler, tokens[0], Outcome::Ack);
        assert_eq!(told(&settler), ["ack ..6"]);
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_window_behind_a_stuck_one_is_told_at_once_and_in_parts() {
        let settler = settler(100, None);
        let tokens = take(&settler, 100);
        for token in &tokens[1..51] {
            settle(&settler, *token, Outcome::Ack);
        }
        assert_eq!(told(&settler).len(), MOST_FRAMES);
        pass(AGE_BEHIND).await;
        assert_eq!(told(&settler).len(), 50 - MOST_FRAMES);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_again_is_told_before_an_ack_passes_it() {
        let settler = settler(16, Some(OnReject::Discard));
        let tokens = take(&settler, 4);
        settle(&settler, tokens[0], Outcome::Ack);
        settle(&settler, tokens[1], Outcome::Release);
        settle(&settler, tokens[2], Outcome::reject("no"));
        settle(&settler, tokens[3], Outcome::Ack);
        assert_eq!(told(&settler), ["requeue 2", "reject 3", "ack ..4"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_is_held_in_its_place_until_its_time() {
        // So large that two of it are not many.
        let (settler, after) = (settler(16, None), Duration::from_secs(3));
        let tokens = take(&settler, 2);
        settle(&settler, tokens[0], Outcome::Retry { after });
        settle(&settler, tokens[1], Outcome::Ack);
        assert_eq!(told(&settler), ["ack 2"]);
        assert_eq!(settler.due(), Some(Instant::now() + after));
        pass(after - Duration::from_millis(1)).await;
        assert!(told(&settler).is_empty());
        pass(Duration::from_millis(1)).await;
        assert_eq!(told(&settler), ["requeue 1"]);
        let print = Fingerprint::of(None, &"x".into(), None);
        assert_eq!(settler.tried.count(print), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reject_without_a_target_is_held_and_requeued() {
        let settler = settler(2, None);
        let tokens = take(&settler, 1);
        settle(&settler, tokens[0], Outcome::reject("no"));
        assert!(told(&settler).is_empty());
        assert_eq!(settler.control.handle().health().warnings.len(), 1);
        pass(REJECT_PACE).await;
        assert_eq!(told(&settler), ["requeue 1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closing_source_acks_and_leaves_everything_else_to_the_end_of_the_connection() {
        let settler = settler(16, Some(OnReject::BrokerDeadLetters));
        let tokens = take(&settler, 8);
        settle(&settler, tokens[0], Outcome::Retry { after: Duration::from_secs(60) });
        settler.control.handle().close(Drain::Finish);
        settle(&settler, tokens[1], Outcome::Release);
        settler.close(2);
        settle(&settler, tokens[2], Outcome::Ack);
        settle(&settler, tokens[3], Outcome::Retry { after: Duration::ZERO });
        drop(settler.dropped(tokens[4]));
        assert!(!settler.is_done(), "one is at work");
        settle(&settler, tokens[5], Outcome::reject("no"));
        assert_eq!(told(&settler), ["reject 6", "ack 3"]);
        assert!(settler.is_done() && settler.due().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_decided_after_the_end_is_stale() {
        let settler = settler(2, None);
        let tokens = take(&settler, 1);
        settler.end();
        assert!(settler.generation().is_over());
        assert_eq!(settle(&settler, tokens[0], Outcome::Ack), Settlement::Stale);
        assert!(told(&settler).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_of_one_is_told_at_once() {
        let settler = settler(1, None);
        let tokens = take(&settler, 1);
        settle(&settler, tokens[0], Outcome::Ack);
        settler.posted().await;
        assert_eq!(told(&settler), ["ack 1"]);
    }
}
