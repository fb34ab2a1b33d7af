use std::collections::BTreeMap;

use proptest::prelude::*;
use tower_mq_delivery::Outcome;

use super::{Answer, Book, Handed, Model, run, steps};
use crate::source::ledger::offsets::Offsets;

const MESSAGES: u64 = 60;
const START: u64 = 1000;

/// A queue of RocketMQ, of which the broker stores one offset. Every fifth message is filtered out by the broker.
struct Queue {
    window: usize,
    span: u64,
    offsets: Offsets,
    stored: u64,
    /// The next to pull.
    next: u64,
    /// Of this generation: the delivery of each offset.
    pulled: BTreeMap<u64, usize>,
    /// Sent back, or to the dead letters, and not confirmed yet.
    copies: Vec<(Handed, Outcome)>,
    /// Offsets whose messages the broker may forget.
    done: BTreeMap<u64, Outcome>,
}

impl Queue {
    fn new(window: usize, span: u64) -> Self {
        Self {
            window,
            span,
            offsets: Offsets::new(START, window, span),
            stored: START,
            next: START,
            pulled: BTreeMap::new(),
            copies: Vec::new(),
            done: BTreeMap::new(),
        }
    }

    fn offset(book: &Book, delivery: usize) -> u64 {
        book.records[delivery].message
    }

    fn undone(&self) -> impl Iterator<Item = u64> {
        self.pulled.keys().copied().filter(|offset| !self.done.contains_key(offset))
    }
}

impl Model for Queue {
    fn take(&mut self, book: &mut Book, handed: &mut Vec<Handed>) {
        if self.next == START + MESSAGES {
            return;
        }
        if self.next.is_multiple_of(5) {
            self.next += 1;
            return self.offsets.skip_to(self.next);
        }
        let too_far = self.undone().next().is_some_and(|first| self.next >= first + self.span);
        let room = self.offsets.room();
        let Some(token) = self.offsets.take(self.next) else {
            assert!(room == 0 || too_far, "nothing else is refused");
            return;
        };
        assert!(room > 0 && !too_far);
        assert_eq!(self.offsets.take(self.next), None, "an offset is taken once");
        let delivery = book.taken(self.next);
        self.pulled.insert(self.next, delivery);
        // In a later generation it may come again; it is to be done again, too.
        self.done.remove(&self.next);
        self.next += 1;
        handed.push(Handed { delivery, token });
    }

    fn decide(&mut self, book: &mut Book, handed: Handed, outcome: &Outcome) -> Answer {
        match outcome {
            Outcome::Ack => {
                let accepted = self.offsets.done(handed.token);
                if accepted {
                    book.decided(handed.delivery, outcome);
                    self.done.insert(Self::offset(book, handed.delivery), Outcome::Ack);
                }
                accepted.into()
            }
            Outcome::Release => self.offsets.again(handed.token).map_or(Answer::Refused, Answer::Again),
            _ => {
                // The copy is under way: only who waits for it can name the delivery.
                let Some(token) = self.offsets.again(handed.token) else { return Answer::Refused };
                book.decided(handed.delivery, outcome);
                self.copies.push((Handed { token, ..handed }, outcome.clone()));
                Answer::Accepted
            }
        }
    }

    fn flush(&mut self, book: &mut Book, behind: bool, frames: usize) {
        // The broker confirms some of the copies, or all.
        let confirmed = if behind { self.copies.len().min(frames) } else { 0 };
        for (copy, outcome) in self.copies.drain(..confirmed) {
            assert!(self.offsets.done(copy.token));
            book.told(copy.delivery, &outcome);
            self.done.insert(Self::offset(book, copy.delivery), outcome);
        }
        let Some(offset) = self.offsets.commit() else { return };
        assert!(offset > self.stored, "the offset never goes back");
        self.stored = offset;
        for delivery in self.pulled.range(..offset).map(|(_, delivery)| *delivery) {
            let outcome =
                book.records[delivery].decision.clone().expect("the offset passes nothing undecided");
            assert!(self.done.contains_key(&Self::offset(book, delivery)), "nor what waits for its copy");
            if outcome == Outcome::Ack {
                book.told(delivery, &outcome);
            }
        }
        self.pulled.retain(|pulled, _| *pulled >= offset);
    }

    fn end(&mut self) {
        self.offsets = Offsets::new(self.stored, self.window, self.span);
        self.next = self.stored;
        self.pulled.clear();
        self.copies.clear();
    }

    fn check(&self, book: &Book) {
        assert_eq!(self.offsets.open(), book.open() + self.copies.len());
        assert_eq!(self.offsets.room(), self.window - self.offsets.open() - self.offsets.decided());
        if let (Some(first), Some(last)) = (self.undone().next(), self.pulled.keys().next_back()) {
            assert!(last - first < self.span, "a crash brings back no more than the span");
        }
    }

    fn check_flushed(&self, book: &Book) {
        let first = self.undone().next();
        assert_eq!(self.stored, first.unwrap_or(self.next), "all that can be told was told");
        assert!(first.is_some() || book.untold() == 0);
        assert_eq!(self.offsets.decided(), 0);
    }

    fn is_drained(&self) -> bool {
        self.stored == START + MESSAGES
    }
}

proptest! {
    #[test]
    fn the_offset_passes_nothing_undone_and_never_goes_back(
        window in 1..12usize,
        span in 1..20u64,
        steps in steps(),
    ) {
        run(Queue::new(window, span), steps);
    }
}

#[test]
fn a_stuck_message_stops_the_queue_at_the_span_and_not_at_the_window() {
    let mut offsets = Offsets::new(0, 3, 10);
    let stuck = offsets.take(0).unwrap();
    for offset in 1..10 {
        let token = offsets.take(offset).unwrap();
        assert!(offsets.done(token));
        assert_eq!(offsets.commit(), None);
    }
    assert_eq!((offsets.take(10), offsets.room()), (None, 2));
    assert!(offsets.done(stuck));
    assert_eq!(offsets.commit(), Some(10));
    assert!(offsets.take(10).is_some());
}

#[test]
fn what_was_filtered_out_is_passed() {
    let mut offsets = Offsets::new(0, 3, 10);
    let token = offsets.take(4).unwrap();
    offsets.skip_to(9);
    assert_eq!(offsets.commit(), Some(4));
    assert!(offsets.done(token));
    offsets.skip_to(7);
    assert_eq!(offsets.commit(), Some(9), "what was passed stays so");
    assert_eq!(offsets.take(8), None);
}
