//! One life of a consumer's connection: what its deliveries are settled with.

use std::{fmt, sync::Arc};

use tower_mq_delivery::{Event, Generation, Outcome, Settle, Settlement, Settling, Token};

use super::{
    broker::Broker,
    state::{Decision, NO_ATTEMPTS_LEFT},
    wakes::Wakes,
};

pub(super) struct Connection {
    broker: Broker,
    /// The queue, and the subscription there.
    consumer: (usize, usize),
    pub(super) generation: Arc<Generation>,
}

impl Connection {
    pub(super) fn new(
        broker: Broker,
        queue: usize,
        subscription: usize,
        generation: Arc<Generation>,
    ) -> Self {
        Self { broker, consumer: (queue, subscription), generation }
    }

    #[inline(always)]
    fn decide(&self, token: Token, outcome: &Outcome) -> Settlement {
        let (mut done, mut wakes) = (None, Wakes::default());
        let decision = {
            let mut state = self.broker.lock();
            // Generations end under the lock, so this cannot change before the decision is stored.
            match self.generation.is_over() {
                true => Err(Settlement::Stale),
                false => state.settle(self.consumer, token, outcome, &mut done, &mut wakes),
            }
        };
        wakes.wake();
        match decision {
            Ok(Decision::Stored) => Settlement::Confirmed,
            Ok(Decision::Exhausted) => {
                self.replaced(outcome);
                Settlement::Confirmed
            }
            Err(settlement) => settlement,
        }
    }

    #[cold]
    fn replaced(&self, decided: &Outcome) {
        let told = Outcome::reject(NO_ATTEMPTS_LEFT);
        self.generation.origin().report(&Event::Replaced { decided, told: &told });
    }
}

impl Settle for Connection {
    fn settle(&self, token: Token, outcome: Outcome) -> Settling {
        let settlement = self.decide(token, &outcome);
        self.generation.origin().report(&Event::Settled { outcome: &outcome, settlement });
        Settling::done(Ok(settlement))
    }

    fn dropped(&self, token: Token) -> Settling {
        let settlement = self.decide(token, &Outcome::Release);
        self.generation.origin().report(&Event::Dropped);
        Settling::done(Ok(settlement))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("generation", &self.generation.number()).finish_non_exhaustive()
    }
}
