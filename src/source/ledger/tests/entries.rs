use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
};

use proptest::prelude::*;
use tower_mq_delivery::Outcome;

use super::{Answer, Book, Handed, Model, run, steps};
use crate::source::ledger::entries::{Arrival, Entries, Frame};

const fn size(entry: u64) -> u32 {
    [1, 3, 5, 2][entry as usize % 4]
}

/// A topic of Pulsar: an entry is acknowledged, or comes again, as a whole.
struct Topic {
    window: usize,
    entries: Entries<u64>,
    arrival: Option<(u64, Arrival<u64>)>,
    count: usize,
    ready: BTreeSet<u64>,
    unacked: BTreeSet<u64>,
    gone: BTreeSet<u64>,
    /// Of the entries that are not gone, in this generation: which delivery acked a member.
    acked: BTreeMap<(u64, u32), usize>,
    /// Since the entry came last: the deliveries of its members.
    members: BTreeMap<(u64, u32), usize>,
}

impl Topic {
    /// No more entries than the window, so that those away are never forgotten.
    fn new(window: usize) -> Self {
        Self {
            window,
            entries: Entries::new(window),
            arrival: None,
            count: window,
            ready: (0..window as u64).collect(),
            unacked: BTreeSet::new(),
            gone: BTreeSet::new(),
            acked: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }
}

impl Model for Topic {
    fn take(&mut self, book: &mut Book, handed: &mut Vec<Handed>) {
        if self.arrival.as_ref().is_none_or(|(_, arrival)| arrival.is_done())
            && self.entries.room() > 0
            && let Some(entry) = self.ready.pop_first()
        {
            self.unacked.insert(entry);
            let size = NonZeroU32::new(size(entry)).unwrap();
            let arrival = self.entries.arrive(entry, size).expect("the broker has it, we do not");
            self.arrival = Some((entry, arrival));
            assert!(self.entries.arrive(entry, size).is_none(), "it is here already");
            self.members.retain(|(other, _), _| *other != entry);
        }
        let Some((entry, arrival)) = &mut self.arrival else { return };
        let entry = *entry;
        let room = self.entries.room();
        let Some((index, token)) = self.entries.take(arrival) else {
            assert!(arrival.is_done() || room == 0);
            return;
        };
        assert!(!self.acked.contains_key(&(entry, index)), "an acked member is not handed out again");
        let delivery = book.taken(entry * 100 + u64::from(index));
        assert_eq!(self.members.insert((entry, index), delivery), None, "a member is handed out once");
        handed.push(Handed { delivery, token });
    }

    fn decide(&mut self, book: &mut Book, handed: Handed, outcome: &Outcome) -> Answer {
        let accepted = self.entries.decide(handed.token, outcome);
        if accepted {
            book.decided(handed.delivery, outcome);
            let message = book.records[handed.delivery].message;
            if *outcome == Outcome::Ack {
                self.acked.insert((message / 100, (message % 100) as u32), handed.delivery);
            }
        }
        accepted.into()
    }

    fn flush(&mut self, book: &mut Book, _behind: bool, frames: usize) {
        for _ in 0..frames {
            match self.entries.next_frame() {
                None => break,
                Some(Frame::Ack(entry)) => {
                    assert!(self.unacked.remove(&entry) && self.gone.insert(entry));
                    for index in 0..size(entry) {
                        let delivery = self.acked.remove(&(entry, index)).expect("all members are acked");
                        book.told(delivery, &Outcome::Ack);
                    }
                }
                Some(Frame::Redeliver(entry)) => {
                    assert!(self.unacked.remove(&entry) && self.ready.insert(entry));
                    let members = (0..size(entry)).filter(|index| !self.acked.contains_key(&(entry, *index)));
                    let members: Vec<_> = members.collect();
                    assert!(!members.is_empty(), "nothing comes again for nothing");
                    for index in members {
                        let delivery = self.members[&(entry, index)];
                        let outcome =
                            book.records[delivery].decision.clone().expect("all members are decided");
                        book.told(delivery, &outcome);
                    }
                }
            }
        }
    }

    fn end(&mut self) {
        self.ready.append(&mut self.unacked);
        self.acked.clear();
        self.members.clear();
        (self.entries, self.arrival) = (Entries::new(self.window), None);
    }

    fn check(&self, book: &Book) {
        assert_eq!(self.ready.len() + self.unacked.len() + self.gone.len(), self.count, "nothing is lost");
        assert_eq!(self.entries.open(), book.open());
        assert_eq!(self.entries.room(), self.window - self.entries.open() - self.entries.decided());
        assert!(self.entries.away() <= self.window);
        let remembered: BTreeSet<_> = self.acked.keys().map(|(entry, _)| *entry).collect();
        assert_eq!(self.entries.away(), remembered.intersection(&self.ready).count());
    }

    fn check_flushed(&self, book: &Book) {
        assert_eq!(self.entries.decided(), 0);
        for (delivery, record) in book.live().filter(|(_, record)| record.decision.is_some() && !record.told)
        {
            let (entry, index) = (record.message / 100, (record.message % 100) as u32);
            let remembered =
                self.acked.get(&(entry, index)) == Some(&delivery) && !self.gone.contains(&entry);
            assert!(remembered || self.unacked.contains(&entry), "what is told is told of whole entries");
        }
        for entry in &self.unacked {
            let open = (0..size(*entry)).any(|index| {
                let delivery = self.members.get(&(*entry, index));
                let decided = delivery.is_some_and(|delivery| book.records[*delivery].decision.is_some());
                !decided && !self.acked.contains_key(&(*entry, index))
            });
            assert!(open, "an entry that is decided was told");
        }
    }

    fn is_drained(&self) -> bool {
        self.gone.len() == self.count
    }
}

proptest! {
    #[test]
    fn an_entry_is_acked_once_and_its_acked_members_are_handled_once(window in 1..12usize, steps in steps()) {
        run(Topic::new(window), steps);
    }
}

fn members(entries: &mut Entries<u32>, entry: u32, size: u32) -> Vec<(u32, tower_mq_delivery::Token)> {
    let mut arrival = entries.arrive(entry, NonZeroU32::new(size).unwrap()).unwrap();
    let members = std::iter::from_fn(|| entries.take(&mut arrival)).collect();
    assert!(arrival.is_done());
    members
}

#[test]
fn members_beyond_the_first_64_are_remembered() {
    let mut entries = Entries::new(200);
    for (index, token) in members(&mut entries, 7, 200) {
        let outcome = if index % 63 == 5 { Outcome::Release } else { Outcome::Ack };
        entries.decide(token, &outcome);
    }
    assert_eq!(entries.next_frame(), Some(Frame::Redeliver(7)));
    let back = members(&mut entries, 7, 200);
    assert_eq!(back.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [5, 68, 131, 194]);
    for (_, token) in back {
        assert_eq!(entries.next_frame(), None);
        entries.decide(token, &Outcome::Ack);
    }
    assert_eq!(entries.next_frame(), Some(Frame::Ack(7)));
}

#[test]
fn an_entry_larger_than_the_window_is_decided() {
    let mut entries = Entries::new(2);
    let mut arrival = entries.arrive("large", NonZeroU32::new(100).unwrap()).unwrap();
    while !arrival.is_done() {
        assert_eq!(entries.next_frame(), None);
        let (_, token) = entries.take(&mut arrival).unwrap();
        entries.decide(token, &Outcome::Ack);
    }
    assert_eq!((entries.room(), entries.decided()), (1, 1));
    assert_eq!(entries.next_frame(), Some(Frame::Ack("large")));
}

#[test]
fn entries_that_stay_away_are_forgotten_the_oldest_first() {
    let mut entries = Entries::new(2);
    for entry in 0..1000 {
        let tokens = members(&mut entries, entry, 2);
        entries.decide(tokens[0].1, &Outcome::Ack);
        entries.decide(tokens[1].1, &Outcome::Release);
        assert_eq!(entries.next_frame(), Some(Frame::Redeliver(entry)));
        assert!(entries.away() <= 2);
    }
    assert_eq!(members(&mut entries, 999, 2).len(), 1, "remembered");
    assert_eq!(members(&mut entries, 0, 1).len(), 1, "forgotten");
}
