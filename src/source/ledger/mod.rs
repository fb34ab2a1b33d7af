//! What one generation of a source has taken, in order, and what of it is decided.
//!
//! One structure under every source that has to tell a broker later, and in the broker's own way; the in-process broker
//! decides at once, and needs none. It holds a fixed number of places, the window, and allocates nothing after it was
//! made: a delivery that is stuck at the front costs its own place, however many pass behind it. A delivery
//! occupies its place until the frame that tells the broker is taken out of the ledger: decided and not yet told
//! still counts as taken.
//!
//! What a broker is told differs, so each way to tell it has a file of its own:
//!
//! | broker | file | what is told |
//! |---|---|---|
//! | RabbitMQ | [`multiple`] | one ack up to a tag for the settled prefix, the rest singly |
//! | AMQP 1.0 | [`ranges`] | runs of consecutive delivery ids with one outcome |
//! | Pulsar | [`entries`] | a batch entry, when all its members are decided |
//! | RocketMQ 5, FIFO | [`receives`] | acks singly, a release gives back the rest of its receive |
//! | RocketMQ, queue-based | [`offsets`] | the offset of the first undecided |
//!
//! A generation has a ledger of its own; when it ends, the ledger is dropped with all that it holds. Whoever owns the
//! ledgers refuses decisions for one that is gone. Tokens of another ledger are refused here, too, for as long as the
//! stamps of the two have not grown into each other: this is the second net, not the first.

// A build with one broker's feature uses one of the ways and the methods that it needs. The tests use all.
#![cfg_attr(not(test), allow(dead_code))]

mod chain;
pub(crate) mod entries;
pub(crate) mod multiple;
pub(crate) mod offsets;
pub(crate) mod ranges;
pub(crate) mod receives;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};

use tower_mq_delivery::{Outcome, Token};

use self::chain::Chain;

/// What one generation of a source has taken, in order, and what of it is decided.
///
/// `T` is what the broker needs to know a delivery by.
///
/// # Cost
/// Every method is O(1) for each delivery, over its life, and none allocates; but see
/// [`pop_decided`](Self::pop_decided).
pub(crate) struct Ledger<T> {
    places: Box<[Place<T>]>,
    free: Vec<u32>,
    /// All that occupy a place, in the order taken.
    taken: Chain,
    /// Decided as acked, and not popped; in the order decided.
    acked: Chain,
    /// Decided as anything else.
    negative: Chain,
    /// The first in `taken` that is not decided. It only moves forward, so moving it costs each delivery one step.
    hole: Option<u32>,
    takes: u64,
    stamp: u32,
    /// Both chains of the decided are in the order taken.
    sorted: bool,
    sorting: Vec<u32>,
}

/// Free without a tag; undecided without an outcome.
#[derive(Debug)]
struct Place<T> {
    tag: Option<T>,
    outcome: Option<Outcome>,
    sequence: u64,
    stamp: u32,
}

impl<T> Ledger<T> {
    /// A ledger that holds at most `window` deliveries.
    pub(crate) fn new(window: usize) -> Self {
        // The last number means "no place" in a chain.
        let window = u32::try_from(window).unwrap_or(u32::MAX).min(u32::MAX - 1);
        let places = window as usize;
        // Steps of the golden ratio keep the stamps of any few ledgers far apart.
        static STAMPS: AtomicU32 = AtomicU32::new(0);
        Self {
            places: (0..window).map(|_| Place { tag: None, outcome: None, sequence: 0, stamp: 0 }).collect(),
            free: (0..window).rev().collect(),
            taken: Chain::new(places),
            acked: Chain::new(places),
            negative: Chain::new(places),
            hole: None,
            takes: 0,
            stamp: STAMPS.fetch_add(0x9E37_79B9, Ordering::Relaxed),
            sorted: true,
            sorting: Vec::with_capacity(places),
        }
    }

    /// Takes a delivery behind all others. `None`: the window is full.
    pub(crate) fn take(&mut self, tag: T) -> Option<Token> {
        let place = self.free.pop()?;
        let (sequence, stamp) = (self.takes, self.next_stamp());
        self.takes += 1;
        self.places[place as usize] = Place { tag: Some(tag), outcome: None, sequence, stamp };
        self.taken.push(place);
        self.hole = self.hole.or(Some(place));
        Some(token(place, stamp))
    }

    /// Decides a delivery. `false`: there is none of this name, or it is decided already.
    pub(crate) fn decide(&mut self, token: Token, outcome: Outcome) -> bool {
        let Some(place) = self.find(token) else { return false };
        self.decide_place(place, outcome);
        true
    }

    /// A new name for a delivery that is to be handed out once more from here; the old one is void. It stays
    /// undecided, and where it is in the order. `None` as in [`decide`](Self::decide).
    pub(crate) fn again(&mut self, old: Token) -> Option<Token> {
        let place = self.find(old)?;
        let stamp = self.next_stamp();
        self.places[place as usize].stamp = stamp;
        Some(token(place, stamp))
    }

    /// What the broker knows an undecided delivery by.
    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        self.places[self.find(token)? as usize].tag.as_ref()
    }

    /// The first delivery that is not decided.
    pub(crate) fn first_open(&self) -> Option<&T> {
        self.places[self.hole? as usize].tag.as_ref()
    }

    /// How many deliveries it can ever hold.
    pub(crate) fn window(&self) -> usize {
        self.places.len()
    }

    /// How many more can be taken.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// How many are taken and not decided.
    pub(crate) fn open(&self) -> usize {
        self.taken.len() - self.decided()
    }

    /// How many are decided and not popped: the broker has not been told.
    pub(crate) fn decided(&self) -> usize {
        self.acked.len() + self.negative.len()
    }

    /// Pops the front, if it is decided.
    pub(crate) fn pop_settled(&mut self) -> Option<(T, Outcome)> {
        let front = self.taken.first().filter(|front| Some(*front) != self.hole)?;
        self.pop(front)
    }

    /// Pops one that was acked, wherever it is, in the order decided.
    pub(crate) fn pop_acked(&mut self) -> Option<(T, Outcome)> {
        let place = self.acked.first()?;
        self.pop(place)
    }

    /// Pops one that was decided as anything but acked, wherever it is, in the order decided.
    pub(crate) fn pop_negative(&mut self) -> Option<(T, Outcome)> {
        let place = self.negative.first()?;
        self.pop(place)
    }

    /// Pops a decided one, wherever it is, in the order taken.
    ///
    /// # Cost
    /// If decisions have come in another order since the last call, those that are decided are sorted: call it until
    /// it is empty. The undecided ones are not looked at.
    pub(crate) fn pop_decided(&mut self) -> Option<(T, Outcome)> {
        let place = self.first_decided_place()?;
        self.pop(place)
    }

    /// What [`pop_decided`](Self::pop_decided) would pop.
    pub(crate) fn first_decided(&mut self) -> Option<(&T, &Outcome)> {
        let place = self.first_decided_place()?;
        let place = &self.places[place as usize];
        place.tag.as_ref().zip(place.outcome.as_ref())
    }

    /// The place of an undecided delivery.
    fn find(&self, token: Token) -> Option<u32> {
        let (number, stamp) = (token as u32, (token >> 32) as u32);
        let place = self.places.get(number as usize)?;
        (place.tag.is_some() && place.outcome.is_none() && place.stamp == stamp).then_some(number)
    }

    fn decide_place(&mut self, number: u32, outcome: Outcome) {
        let chain = if matches!(outcome, Outcome::Ack) { &mut self.acked } else { &mut self.negative };
        let place = &mut self.places[number as usize];
        place.outcome = Some(outcome);
        let sequence = place.sequence;
        self.sorted &= chain.last().is_none_or(|last| self.places[last as usize].sequence < sequence);
        chain.push(number);
        while let Some(hole) = self.hole
            && self.places[hole as usize].outcome.is_some()
        {
            self.hole = self.taken.after(hole);
        }
    }

    /// Frees the place of a decided delivery.
    fn pop(&mut self, number: u32) -> Option<(T, Outcome)> {
        let place = &mut self.places[number as usize];
        let popped = place.tag.take().zip(place.outcome.take())?;
        self.taken.remove(number);
        let chain = if matches!(popped.1, Outcome::Ack) { &mut self.acked } else { &mut self.negative };
        chain.remove(number);
        self.sorted |= self.acked.len() + self.negative.len() == 0;
        self.free.push(number);
        Some(popped)
    }

    fn first_decided_place(&mut self) -> Option<u32> {
        if !self.sorted {
            self.sort();
        }
        match (self.acked.first(), self.negative.first()) {
            (Some(acked), Some(negative)) => {
                let sequence = |place: u32| self.places[place as usize].sequence;
                Some(if sequence(acked) < sequence(negative) { acked } else { negative })
            }
            (acked, negative) => acked.or(negative),
        }
    }

    fn sort(&mut self) {
        for chain in [&mut self.acked, &mut self.negative] {
            while let Some(place) = chain.first() {
                chain.remove(place);
                self.sorting.push(place);
            }
            self.sorting.sort_unstable_by_key(|place| self.places[*place as usize].sequence);
            self.sorting.drain(..).for_each(|place| chain.push(place));
        }
        self.sorted = true;
    }

    fn next_stamp(&mut self) -> u32 {
        self.stamp = self.stamp.wrapping_add(1);
        self.stamp
    }
}

/// A name comes again after 2³² others, and only for the same place.
fn token(place: u32, stamp: u32) -> Token {
    Token::from(stamp) << 32 | Token::from(place)
}

impl<T> fmt::Debug for Ledger<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("window", &self.window())
            .field("open", &self.open())
            .field("decided", &self.decided())
            .finish_non_exhaustive()
    }
}
