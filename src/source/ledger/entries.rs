//! Pulsar: a batch is one entry at the broker, which is acknowledged, or comes again, as a whole.
//!
//! The members of an entry are handed out one by one. When the last is decided, the entry is acknowledged if all were
//! acked, else it is redelivered; the members that were acked are remembered until it comes back, and are not handed
//! out again.
//!
//! A member gives up its place as soon as it is decided, but for the last one of an entry, which keeps it until the
//! broker is told. Otherwise an entry that is larger than the window would never be decided. So the broker may wait
//! for more than a window of messages, by at most the other members of the entries that have one undecided.
//!
//! Only an ack and "again" can be told. A reject is copied to the dead letters first and then decided as acked, a retry is
//! decided when its time has come; whatever is not an ack makes the entry come again.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    num::NonZeroU32,
};

use tower_mq_delivery::{Outcome, Token};

use super::Ledger;

/// The entries of one generation. `E` is the id of an entry: topic, ledger and number.
#[derive(Debug)]
pub(crate) struct Entries<E> {
    ledger: Ledger<Member<E>>,
    /// Those with a member undecided or not handed out, those that the broker is to be told of, and those away.
    entries: HashMap<E, Entry>,
    /// Redelivered with some members acked, and not back yet; the first is the longest away.
    away: BTreeMap<u64, E>,
    redeliveries: u64,
}

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<E> {
    /// All members are acked.
    Ack(E),
    /// Some are to come again, and so all do.
    Redeliver(E),
}

/// An entry whose members are being handed out. Dropped before it is done, its entry stays undecided for as long as
/// the generation lives.
#[derive(Debug)]
pub(crate) struct Arrival<E> {
    entry: E,
    size: u32,
    /// The next member to hand out; beyond the last: there is none.
    next: u32,
}

impl<E> Arrival<E> {
    /// Whether all members that are to be handled were handed out.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.size
    }

    fn skip(&mut self, acked: &Bits) {
        while !self.is_done() && acked.contains(self.next) {
            self.next += 1;
        }
    }
}

#[derive(Debug)]
struct Member<E> {
    entry: E,
    index: u32,
}

#[derive(Debug)]
struct Entry {
    size: u32,
    undecided: u32,
    acked: Bits,
    again: bool,
    /// Its number in `away`.
    away: Option<u64>,
}

impl<E: Copy + Eq + Hash> Entries<E> {
    /// At most `window` members at a time are handed out and not decided, or keep their entry's place.
    pub(crate) fn new(window: usize) -> Self {
        Self {
            ledger: Ledger::new(window),
            entries: HashMap::with_capacity(window),
            away: BTreeMap::new(),
            redeliveries: 0,
        }
    }

    /// An entry has come, for the first time or again. `None`: it is here already, so this one is to be dropped.
    pub(crate) fn arrive(&mut self, entry: E, size: NonZeroU32) -> Option<Arrival<E>> {
        let size = size.get();
        let mut arrival = Arrival { entry, size, next: 0 };
        if let Some(known) = self.entries.get_mut(&entry) {
            self.away.remove(&known.away.take()?);
            if known.size == size {
                known.undecided = size - known.acked.count();
                arrival.skip(&known.acked);
                return Some(arrival);
            }
        }
        let fresh = Entry { size, undecided: size, acked: Bits::new(size), again: false, away: None };
        self.entries.insert(entry, fresh);
        Some(arrival)
    }

    /// Hands out the next member that was not acked before: its number in the batch, and its token. `None`: the window
    /// is full, or there is none ([`Arrival::is_done`]).
    pub(crate) fn take(&mut self, arrival: &mut Arrival<E>) -> Option<(u32, Token)> {
        if arrival.is_done() {
            return None;
        }
        let index = arrival.next;
        let token = self.ledger.take(Member { entry: arrival.entry, index })?;
        arrival.next += 1;
        // The entry is known as long as one of its members is not decided.
        if let Some(entry) = self.entries.get(&arrival.entry) {
            arrival.skip(&entry.acked);
        }
        Some((index, token))
    }

    /// Decides a member. `false` as in [`Ledger::decide`].
    pub(crate) fn decide(&mut self, token: Token, outcome: &Outcome) -> bool {
        let Some(place) = self.ledger.find(token) else { return false };
        let Some(member) = self.ledger.get(token) else { return false };
        let Some(entry) = self.entries.get_mut(&member.entry) else { return false };
        entry.undecided -= 1;
        match outcome {
            Outcome::Ack => entry.acked.insert(member.index),
            _ => entry.again = true,
        }
        let (last, again) = (entry.undecided == 0, entry.again);
        self.ledger.decide_place(place, if again { Outcome::Release } else { Outcome::Ack });
        if !last {
            self.ledger.pop(place);
        }
        true
    }

    /// The next frame, acks first. Send it before the next call.
    ///
    /// A redelivered entry is remembered for its acked members. If more than a window of them are away, the one that
    /// is longest away is forgotten: another consumer has it, or its acked members will be handed out again.
    pub(crate) fn next_frame(&mut self) -> Option<Frame<E>> {
        if let Some((member, _)) = self.ledger.pop_acked() {
            self.entries.remove(&member.entry);
            return Some(Frame::Ack(member.entry));
        }
        let (Member { entry, .. }, _) = self.ledger.pop_negative()?;
        if let Some(known) = self.entries.get_mut(&entry) {
            if known.acked.count() == 0 {
                self.entries.remove(&entry);
            } else {
                (known.again, known.away) = (false, Some(self.redeliveries));
                self.away.insert(self.redeliveries, entry);
                self.redeliveries += 1;
            }
        }
        if self.away.len() > self.ledger.window()
            && let Some((_, oldest)) = self.away.pop_first()
        {
            self.entries.remove(&oldest);
        }
        Some(Frame::Redeliver(entry))
    }

    /// How many more members can be taken.
    pub(crate) fn room(&self) -> usize {
        self.ledger.room()
    }

    /// How many members are handed out and not decided.
    pub(crate) fn open(&self) -> usize {
        self.ledger.open()
    }

    /// How many entries the broker is to be told of.
    pub(crate) fn decided(&self) -> usize {
        self.ledger.decided()
    }

    /// How many entries are remembered until they come back.
    pub(crate) fn away(&self) -> usize {
        self.away.len()
    }
}

/// A set of members. A batch of up to 64 allocates nothing.
#[derive(Debug)]
struct Bits {
    first: u64,
    more: Box<[u64]>,
}

impl Bits {
    fn new(size: u32) -> Self {
        Self { first: 0, more: vec![0; size.saturating_sub(1) as usize / 64].into_boxed_slice() }
    }

    fn insert(&mut self, index: u32) {
        let word = match index / 64 {
            0 => &mut self.first,
            word => &mut self.more[word as usize - 1],
        };
        *word |= 1 << (index % 64);
    }

    fn contains(&self, index: u32) -> bool {
        let word = match index / 64 {
            0 => self.first,
            word => self.more[word as usize - 1],
        };
        word >> (index % 64) & 1 == 1
    }

    fn count(&self) -> u32 {
        self.first.count_ones() + self.more.iter().map(|word| word.count_ones()).sum::<u32>()
    }
}
