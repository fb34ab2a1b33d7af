//! A message plus the duty to settle it.

use std::{fmt, mem::ManuallyDrop, sync::Arc};

use crate::{Message, Outcome, Settlement, Settling, Tally};

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
        tally.take();
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
