//! The layer: plain configuration.

use std::{fmt, sync::Arc, time::Duration};

use tower::retry::budget::Budget;
use tower_layer::Layer;
use tower_mq_delivery::{DynError, Failure, Message, Work};

use crate::{Backoff, Retry};

/// Tries again what failed. See the [crate's docs](crate).
///
/// # Order
/// Inside Settle, and inside Batch if there is one; outside Timeout, so that each try has its own time.
#[derive(Clone, Debug)]
#[must_use]
pub struct RetryLayer(Settings);

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) backoff: Backoff,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Option<Duration>,
    budget: Option<Arc<dyn Budget + Send + Sync>>,
    retry_if: Option<Arc<RetryIf>>,
    on_retry: Option<Arc<OnRetry>>,
}

type RetryIf = dyn Fn(&DynError) -> bool + Send + Sync;
type OnRetry = dyn Fn(&Message, &DynError, Duration) + Send + Sync;

/// Where a message waits for its next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In its place, with its worker.
    InPlace,
    /// In its place, without its worker.
    Park,
    /// At its broker.
    Requeue,
}

impl RetryLayer {
    const fn new(mode: Mode, backoff: Backoff, attempts: u32) -> Self {
        let (elapsed, budget, retry_if, on_retry) = (None, None, None, None);
        Self(Settings { mode, backoff, attempts, elapsed, budget, retry_if, on_retry })
    }

    /// Tries again at once, or after a short rest, in the message's place in the order: its worker waits with it.
    ///
    /// # Order
    /// Kept, that of the key and that of the lane. Whatever waits behind the message waits longer.
    pub const fn in_place(backoff: Backoff) -> Self {
        Self::new(Mode::InPlace, backoff, 3)
    }

    /// As [`in_place`](Self::in_place), but while the message rests, its worker serves *other keys*: for long rests.
    ///
    /// It parks under a partition that goes by key, `PartitionLayer::per_key(n)`, or by none, `unordered(n)`. Elsewhere
    /// it is the same as in place, because nobody could take over: in the lanes of `by_key(n)`, in a partition that
    /// runs inline, without a partition, behind a layer that has passed the message's turn, and for a batch.
    ///
    /// A message that resumes does not wait for the one that its worker took meanwhile: both run. Where the number of
    /// handlers must never be exceeded, put a concurrency limit inside.
    ///
    /// # Order
    /// That of the key is kept: its other messages wait.
    pub const fn park(backoff: Backoff) -> Self {
        Self::new(Mode::Park, backoff, 3)
    }

    /// Gives the message back to its broker, to come again after a delay that grows with its attempts: answers
    /// [`Outcome::Retry`](tower_mq_delivery::Outcome::Retry).
    ///
    /// Where the broker cannot put a message off
    /// ([`delayed_retry`](tower_mq_delivery::Capabilities::delayed_retry)), the source holds it meanwhile, in its place
    /// of the window. Where a message cannot come again without others coming again too
    /// ([`redelivery_disturbs_others`](tower_mq_delivery::Capabilities::redelivery_disturbs_others)), it is retried in
    /// place instead, and the source warns of it once.
    ///
    /// # Order
    /// **Gives up the order of the key**: what was queued behind the message runs before it comes again. In return
    /// nothing waits for it.
    pub const fn requeue(backoff: Backoff) -> Self {
        Self::new(Mode::Requeue, backoff, 5)
    }

    /// How often a message is tried, the first time included. Then its error goes out unchanged, to be judged by a
    /// dead-letter layer or by Settle.
    ///
    /// In place and parked: within one delivery. Default: 3. Requeued: by the count of
    /// [`Message::attempt`], over all deliveries, a message of unknown count being in its second one if it was delivered
    /// before. Default: 5, which is where the default policy rejects; let a policy of your own do so at this number,
    /// too, or the message goes on by that policy.
    ///
    /// # Panics
    /// If `tries` is 0.
    #[track_caller]
    pub const fn attempts(mut self, tries: u32) -> Self {
        assert!(tries > 0, "`RetryLayer::attempts` counts the first try, so it is at least 1");
        self.0.attempts = tries;
        self
    }

    /// No try begins later than this after the first one of the same delivery: if the next rest would end later, the
    /// error goes out at once. Default: no limit. What is requeued has none.
    ///
    /// The time includes that of the handler. It does not end a try that runs: a Timeout inside does.
    pub const fn elapsed(mut self, limit: Duration) -> Self {
        self.0.elapsed = Some(limit);
        self
    }

    /// Retries only as long as this budget allows: for times when nearly everything fails, and each retry is one more
    /// burden. Default: none, retries are not rationed.
    ///
    /// Each call that succeeds is a deposit, and each retry a withdrawal; a message for whose retry there is nothing
    /// left goes out with its error. All services that come from this layer and its clones share it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_mq_retry::{Backoff, RetryLayer, budget::TpsBudget};
    ///
    /// // One retry for every five successes of the last 10 s, and ten a second to begin with.
    /// let budget = TpsBudget::new(Duration::from_secs(10), 10, 0.2);
    /// let retry = RetryLayer::in_place(Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1)))
    ///     .budget(budget);
    /// # let _ = retry;
    /// ```
    pub fn budget(mut self, budget: impl Budget + Send + Sync + 'static) -> Self {
        self.0.budget = Some(Arc::new(budget));
        self
    }

    /// Only errors for which this is true are retried; others go out at once. Default: all.
    ///
    /// It is not asked about an error that has decided by itself ([`Failure`]): that one is never retried here.
    pub fn retry_if(mut self, retry_if: impl Fn(&DynError) -> bool + Send + Sync + 'static) -> Self {
        self.0.retry_if = Some(Arc::new(retry_if));
        self
    }

    /// Called before each retry with the message, its error, and how long it rests: for a log or a count of your own.
    /// With a batch, once for each member that is retried.
    pub fn on_retry(mut self, hook: impl Fn(&Message, &DynError, Duration) + Send + Sync + 'static) -> Self {
        self.0.on_retry = Some(Arc::new(hook));
        self
    }
}

impl Settings {
    /// Whether this error may be retried at all.
    pub(crate) fn wants(&self, error: &DynError) -> bool {
        Failure::find(error).is_none() && self.retry_if.as_ref().is_none_or(|retry_if| retry_if(error))
    }

    /// Whether further tries of this begin here; if not, they are the broker's business.
    pub(crate) fn tries_here(&self, work: &impl Work) -> bool {
        self.mode != Mode::Requeue
            || work.messages().iter().any(|message| message.capabilities().redelivery_disturbs_others)
    }

    #[inline]
    pub(crate) fn deposit(&self) {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
    }

    pub(crate) fn withdraw(&self) -> bool {
        self.budget.as_ref().is_none_or(|budget| budget.withdraw())
    }

    /// The message will be tried again.
    pub(crate) fn retries(&self, message: &Message, error: &DynError, after: Duration) {
        message.failed();
        let (destination, attempt, tries) = (message.destination(), message.attempt(), message.tries());
        tracing::debug!(%destination, attempt, tries, ?after, %error, "a message was not handled and is tried again");
        if let Some(hook) = &self.on_retry {
            hook(message, error, after);
        }
    }
}

impl<S: Clone> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry::new(inner, self.0.clone())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("mode", &self.mode)
            .field("backoff", &self.backoff)
            .field("attempts", &self.attempts)
            .field("elapsed", &self.elapsed)
            .field("budget", &self.budget.is_some())
            .field("retry_if", &self.retry_if.is_some())
            .field("on_retry", &self.on_retry.is_some())
            .finish()
    }
}
