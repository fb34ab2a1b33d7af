//! A message plus the duty to settle it.

use std::{
    fmt,
    mem::ManuallyDrop,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::{Decided, Message, Outcome};

/// A message plus the duty to settle it.
///
/// Not `Clone`: it is settled once, by value. Dropped unsettled, it is released: the broker hands it out again.
#[derive(Debug)]
#[must_use = "a delivery that is dropped goes back to its queue"]
pub struct Delivery {
    message: Message,
    acker: Acker,
}

impl Delivery {
    /// What a source hands out.
    pub fn new(message: Message, acker: Acker) -> Self {
        Self { message, acker }
    }

    /// A delivery that nobody needs to settle: for tests of services.
    pub fn detached(message: Message) -> Self {
        Self { message, acker: Acker { duty: None, tally: None } }
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// For drivers and lanes, which put their turn into it.
    pub fn message_mut(&mut self) -> &mut Message {
        &mut self.message
    }

    /// Message and duty apart.
    pub fn into_parts(self) -> (Message, Acker) {
        (self.message, self.acker)
    }

    /// Settles it.
    pub fn settle(self, outcome: Outcome) -> Settling {
        self.acker.settle(outcome)
    }

    /// For drivers: what becomes of it is counted here, too.
    #[inline]
    pub fn count(&mut self, tally: &Arc<Tally>) {
        Tally::add(&tally.taken);
        self.acker.tally = Some(tally.clone());
    }
}

/// Names one delivery to the [`Settle`] that gave it out.
pub type Token = u64;

/// What a source does with a decision.
///
/// One for each generation, shared by its deliveries: so a settlement of an ended generation reaches the right place,
/// which answers [`Settlement::Stale`] and sends nothing. The source reports to its
/// [`Origin`](crate::Origin::report).
pub trait Settle: Send + Sync {
    /// Posts the decision, at once and without waiting. Called once for each token.
    fn settle(&self, token: Token, outcome: Outcome) -> Settling;

    /// The delivery was dropped without a decision. Called once, instead of [`settle`](Self::settle).
    fn dropped(&self, token: Token) -> Settling {
        self.settle(token, Outcome::Release)
    }
}

/// The duty to settle a delivery, once.
///
/// Dropped, it releases its delivery, and that is counted: a time-out, a cancelled future or a panic never loses a
/// message.
#[must_use = "a delivery whose acker is dropped goes back to its queue"]
pub struct Acker {
    duty: Option<(Arc<dyn Settle>, Token)>,
    tally: Option<Arc<Tally>>,
}

impl Acker {
    /// The duty to settle `token` with `settle`.
    pub fn new(settle: Arc<dyn Settle>, token: Token) -> Self {
        Self { duty: Some((settle, token)), tally: None }
    }

    /// Posts the decision to the source. What is returned only reports; dropping it loses nothing.
    #[inline]
    pub fn settle(self, outcome: Outcome) -> Settling {
        // Its drop would find nothing left to do.
        let mut this = ManuallyDrop::new(self);
        let (duty, tally, index) = (this.duty.take(), this.tally.take(), Tally::index(&outcome));
        let settling = match duty {
            Some((settle, token)) => settle.settle(token, outcome),
            None => Settling::done(Ok(Settlement::Confirmed)),
        };
        if let Some(tally) = tally {
            tally.count(&settling, index);
        }
        settling
    }
}

impl Drop for Acker {
    #[inline(always)]
    fn drop(&mut self) {
        if self.duty.is_some() {
            self.dropped();
        }
    }
}

impl Acker {
    #[cold]
    fn dropped(&mut self) {
        let Some((settle, token)) = self.duty.take() else { return };
        let settling = settle.dropped(token);
        if let Some(tally) = self.tally.take() {
            tally.count(&settling, Tally::DROPPED);
        }
    }
}

impl fmt::Debug for Acker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acker").field(&self.duty.as_ref().map(|(_, token)| token)).finish()
    }
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The source has it, and will tell the broker.
    HandedOver,
    /// The broker has stored it.
    Confirmed,
    /// The generation had ended: nothing was sent, the message comes again.
    Stale,
    /// The broker's lock had run out: the message comes again, or has.
    LeaseLost,
}

/// Why a decision did not reach the broker.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The broker refused it.
    #[error("the broker refused the settlement: {0}")]
    Refused(std::borrow::Cow<'static, str>),
    /// The source ended before it could tell the broker; the message comes again.
    #[error("the source ended before the broker was told")]
    Ended,
}

/// Reports what becomes of a decision. It needs no polling: the decision was posted when this was made.
///
/// # Cancel safety
/// Dropping it loses nothing.
#[derive(Debug)]
#[must_use = "only reports: drop it if the report does not matter"]
pub struct Settling(Reporting);

#[derive(Debug)]
enum Reporting {
    Done(Result<Settlement, SettleError>),
    Waiting(oneshot::Receiver<Result<Settlement, SettleError>>),
}

impl Settling {
    /// All that will be known is known.
    pub const fn done(result: Result<Settlement, SettleError>) -> Self {
        Self(Reporting::Done(result))
    }

    /// The report will come through the sender. A sender that is dropped reports [`SettleError::Ended`].
    pub fn pending() -> (oneshot::Sender<Result<Settlement, SettleError>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Reporting::Waiting(receiver)))
    }

    /// What is known now, without waiting: [`Settlement::HandedOver`] while the broker has not answered.
    pub fn now(&self) -> Result<Settlement, SettleError> {
        match &self.0 {
            Reporting::Done(result) => result.clone(),
            Reporting::Waiting(_) => Ok(Settlement::HandedOver),
        }
    }

    /// What is known now, for those who ask nothing more.
    #[inline]
    pub fn into_now(self) -> Result<Settlement, SettleError> {
        match self.0 {
            Reporting::Done(result) => result,
            Reporting::Waiting(_) => Ok(Settlement::HandedOver),
        }
    }
}

impl Future for Settling {
    type Output = Result<Settlement, SettleError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Reporting::Done(result) => Poll::Ready(result.clone()),
            Reporting::Waiting(report) => {
                Pin::new(report).poll(cx).map(|report| report.unwrap_or(Err(SettleError::Ended)))
            }
        }
    }
}

/// The answer of a settle layer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// What was decided.
    pub outcome: Outcome,
    /// What became of the decision.
    pub settlement: Settlement,
}

impl Settled {
    /// This outcome, and what became of it.
    pub const fn new(outcome: Outcome, settlement: Settlement) -> Self {
        Self { outcome, settlement }
    }
}

impl Decided for Settled {
    fn decided(&self) -> Option<&Outcome> {
        Some(&self.outcome)
    }
}

/// Counts what became of the deliveries that one driver took.
#[derive(Debug, Default)]
pub struct Tally {
    taken: AtomicU64,
    settled: [AtomicU64; 5],
    stale: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    const DROPPED: usize = 4;

    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn index(outcome: &Outcome) -> usize {
        match outcome {
            Outcome::Ack => 0,
            Outcome::Release => 1,
            Outcome::Retry { .. } => 2,
            Outcome::Reject { .. } => 3,
        }
    }

    // A decision that reached nobody is not counted under its name: the message comes again.
    fn count(&self, settling: &Settling, index: usize) {
        match settling.0 {
            Reporting::Done(Ok(Settlement::Stale | Settlement::LeaseLost)) => Self::add(&self.stale),
            Reporting::Done(Err(_)) => Self::add(&self.failed),
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
