//! What becomes of a settlement, where a test says so.

use std::{borrow::Cow, time::Duration};

use tower_mq_delivery::{SettleError, Settlement};

/// What a source answers to a settlement: at once, late, or when the test says so.
///
/// Unless it is told otherwise ([`Probe::reply_with`](crate::Probe::reply_with),
/// [`Script::reply_with`](crate::Script::reply_with)), a source of this crate confirms at once. A settlement of an ended
/// generation is [stale](Settlement::Stale), whatever was said; one whose generation ends while the answer is still to
/// come fails with [`SettleError::Ended`].
///
/// ```
/// use std::time::Duration;
/// use tokio::time::Instant;
/// use tower_mq_delivery::{Message, Outcome, Settlement};
/// use tower_mq_testing::{Reply, delivery};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (order, probe) = delivery(Message::new("two teas"));
/// probe.reply_with(Reply::confirmed().after(Duration::from_secs(5)));
/// let start = Instant::now();
/// assert_eq!(order.settle(Outcome::Ack).await.unwrap(), Settlement::Confirmed);
/// assert_eq!(start.elapsed(), Duration::from_secs(5));
///
/// let (order, probe) = delivery(Message::new("the bill"));
/// probe.reply_with(Reply::refused("the disk is full"));
/// assert!(order.settle(Outcome::Ack).await.is_err());
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a reply does nothing unless a probe or a script is given it"]
pub struct Reply {
    pub(crate) told: Result<Settlement, SettleError>,
    pub(crate) when: When,
}

/// When it is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    After(Duration),
    LetThrough,
}

impl Reply {
    const fn now(told: Result<Settlement, SettleError>) -> Self {
        Self { told, when: When::Now }
    }

    /// The broker has stored it. What happens if nothing else is said.
    pub const fn confirmed() -> Self {
        Self::now(Ok(Settlement::Confirmed))
    }

    /// The source has it; the broker never answers.
    pub const fn handed_over() -> Self {
        Self::now(Ok(Settlement::HandedOver))
    }

    /// The broker's lock had run out. The message comes again if the script says so
    /// ([`Script::deliver_again`](crate::Script::deliver_again)).
    pub const fn lease_lost() -> Self {
        Self::now(Ok(Settlement::LeaseLost))
    }

    pub(crate) const fn stale() -> Self {
        Self::now(Ok(Settlement::Stale))
    }

    /// The broker refuses it.
    pub fn refused(why: impl Into<Cow<'static, str>>) -> Self {
        Self::now(Err(SettleError::Refused(why.into())))
    }

    /// The source ended before it could tell the broker.
    pub const fn ended() -> Self {
        Self::now(Err(SettleError::Ended))
    }

    /// The same, but late.
    pub const fn after(mut self, time: Duration) -> Self {
        self.when = When::After(time);
        self
    }

    /// The same, but only when it is [let through](crate::Probe::let_through).
    pub const fn held(mut self) -> Self {
        self.when = When::LetThrough;
        self
    }
}
