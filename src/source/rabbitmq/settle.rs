//! What is taken on one connection, what is decided of it, and when the broker is told.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

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
        self.control.warn(
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

/// Why a lost link was lost, in the words of this source.
pub(super) fn over_window(window: usize) -> Cow<'static, str> {
    format!("the broker sent more than the {window} unsettled deliveries that were asked for").into()
}
