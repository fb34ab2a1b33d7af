//! A batch that has not started.

use std::sync::Arc;

use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tower_mq_delivery::{Batch, ClosedBy, Drain, Event, Generation, Message, Outcome};

use crate::seats::Seats;

/// A batch that has not started: open, or waiting for the one before it. Never empty while it stands in line.
pub(crate) struct Gathering {
    /// Grows with each batch.
    pub(crate) number: u64,
    pub(crate) group: u64,
    pub(crate) generation: Arc<Generation>,
    pub(crate) seats: Arc<Seats>,
    messages: Vec<Message>,
    /// Of the messages, in their order: less than one for each seat, if members went away.
    taken: Vec<usize>,
    /// What the members have reserved, together.
    places: Option<OwnedSemaphorePermit>,
    bytes: usize,
    /// From when on it may start.
    due_at: Instant,
    /// Why it may; `None`: because it has waited long enough.
    reason: Option<ClosedBy>,
    /// Nothing more comes in.
    sealed: bool,
}

impl Gathering {
    pub(crate) fn open(number: u64, group: u64, generation: Arc<Generation>, due_at: Instant) -> Self {
        Self {
            number,
            group,
            generation,
            seats: Arc::default(),
            messages: Vec::new(),
            taken: Vec::new(),
            places: None,
            bytes: 0,
            due_at,
            reason: None,
            sealed: false,
        }
    }

    /// Takes a member in. Gives back the number of its seat.
    pub(crate) fn add(&mut self, message: Message, place: OwnedSemaphorePermit) -> usize {
        let seat = self.seats.sit();
        self.bytes += message.payload().len();
        self.messages.push(message);
        self.taken.push(seat);
        match &mut self.places {
            Some(places) => places.merge(place),
            none => *none = Some(place),
        }
        seat
    }

    /// Takes the member in this seat out.
    pub(crate) fn remove(&mut self, seat: usize) -> Option<(Message, Option<OwnedSemaphorePermit>)> {
        let at = self.taken.binary_search(&seat).ok()?;
        self.taken.remove(at);
        let message = self.messages.remove(at);
        self.bytes -= message.payload().len();
        Some((message, self.places.as_mut().and_then(|places| places.split(1))))
    }

    pub(crate) fn is_of(&self, generation: &Arc<Generation>) -> bool {
        Arc::ptr_eq(&self.generation, generation)
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.sealed
    }

    /// Where it stands in line. Of one group, an earlier batch is always before a later one: it was sealed before the
    /// later one was opened.
    pub(crate) fn rank(&self) -> (Instant, u64) {
        (self.due_at, self.number)
    }

    pub(crate) fn due_at(&self) -> Instant {
        self.due_at
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due_at <= now
    }

    /// It may start from now on, for this reason, unless it might before. Until then it goes on gathering.
    pub(crate) fn due(&mut self, reason: ClosedBy, now: Instant) {
        if !self.is_due(now) {
            (self.due_at, self.reason) = (now, Some(reason));
        }
    }

    /// Nothing more comes in, for this reason.
    pub(crate) fn seal(&mut self, reason: ClosedBy, now: Instant) {
        (self.due_at, self.reason, self.sealed) = (self.due_at.min(now), Some(reason), true);
    }

    /// Its members must not be handled any more.
    pub(crate) fn is_void(&self) -> bool {
        is_void(&self.generation)
    }

    /// Closes it, and parts it into what is handled and what is answered.
    pub(crate) fn close(self) -> (Batch<Message>, Started) {
        let batch = Batch::new(self.messages, self.reason.unwrap_or(ClosedBy::Wait));
        let started = Started {
            generation: self.generation,
            seats: self.seats,
            taken: self.taken,
            _places: self.places,
        };
        (batch, started)
    }

    /// Gives its members back to their source.
    pub(crate) fn release(self) {
        for message in &self.messages {
            message.origin().report(&Event::NotHandled { message });
        }
        self.close().1.answer(|| Ok(Outcome::Release));
    }
}

/// Whether a message of this generation must not be started.
pub(crate) fn is_void(generation: &Generation) -> bool {
    generation.is_over() || generation.origin().drain() == Some(Drain::Release)
}

/// A batch that is being handled, as those see it who wait for it.
pub(crate) struct Started {
    pub(crate) generation: Arc<Generation>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) taken: Vec<usize>,
    /// Free again when the members are answered.
    _places: Option<OwnedSemaphorePermit>,
}

impl Started {
    /// Answers all members alike.
    pub(crate) fn answer(self, answer: impl Fn() -> Result<Outcome, tower_mq_delivery::BoxError>) {
        self.seats.answer(self.taken.iter().map(|seat| (*seat, answer())));
    }
}
