//! What one call is measured by, until it ends or is dropped.

use std::{num::NonZeroU64, sync::Arc, thread};

use tokio::time::Instant;
use tower_mq_delivery::{Decided, Message};

use crate::{
    deliveries::Ending,
    destinations::{Destination, Place},
    error_type::{ErrorType, Verdict},
    keys,
};

/// One call that is under way. Small: it is part of every response future, also where nothing is measured.
pub(crate) struct Measured {
    destination: Arc<Destination>,
    since: Instant,
    /// The key of the first message, where keys are counted.
    first: Option<NonZeroU64>,
    rest: Option<Box<Rest>>,
}

/// The keys of a batch after its first message.
struct Rest(Vec<Option<NonZeroU64>>);

impl Measured {
    #[inline]
    pub(crate) fn new(destination: &Arc<Destination>, first: &Message, rest: &[Message]) -> Self {
        let destination = destination.clone();
        let mut this = Self { destination, since: Instant::now(), first: None, rest: None };
        if this.destination.place == Place::Delivery {
            this.first = keys::hash(first);
            if !rest.is_empty() {
                this.rest = Some(Box::new(Rest(rest.iter().map(keys::hash).collect())));
            }
            this.destination.taken(this.first, this.rest());
        }
        this
    }

    fn rest(&self) -> &[Option<NonZeroU64>] {
        self.rest.as_ref().map_or(&[], |rest| &rest.0)
    }

    #[inline]
    pub(crate) fn end<T: Decided, E: 'static>(self, answer: &Result<T, E>) {
        match self.destination.place {
            Place::Delivery => self.settled(Ending::of(answer)),
            Place::Process => {
                self.destination
                    .tried(self.since.elapsed(), Verdict::of(answer, self.destination.name_of_error));
            }
        }
    }

    /// Nobody waits for its end any more: a time-out, a shutdown, or a panic.
    #[cold]
    pub(crate) fn dropped(self) {
        let error = if thread::panicking() { ErrorType::Panic } else { ErrorType::Cancelled };
        match self.destination.place {
            Place::Delivery => self.settled(Ending::Dropped),
            Place::Process => self.destination.tried(self.since.elapsed(), Verdict::Failed(error)),
        }
    }

    #[inline]
    fn settled(&self, ending: Ending) {
        self.destination.settled(self.first, self.rest(), self.since.elapsed(), ending);
    }
}
