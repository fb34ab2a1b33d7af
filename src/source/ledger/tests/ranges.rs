use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use tower_mq_delivery::Outcome;

use super::{Answer, Book, Handed, Model, run, steps};
use crate::source::ledger::{Ledger, ranges::next_range};

const MESSAGES: u64 = 40;
/// Ids wrap around in the middle of the first generation.
const FIRST_ID: u32 = u32::MAX - 10;

/// A link of AMQP 1.0, on which every id of a disposition must be unsettled.
struct Link {
    window: usize,
    ledger: Ledger<u32>,
    run: Vec<u32>,
    ready: BTreeSet<u64>,
    unsettled: HashMap<u32, (u64, usize)>,
    gone: BTreeSet<u64>,
    next_id: u32,
}

impl Link {
    fn new(window: usize) -> Self {
        Self {
            window,
            ledger: Ledger::new(window),
            run: Vec::new(),
            ready: (0..MESSAGES).collect(),
            unsettled: HashMap::new(),
            gone: BTreeSet::new(),
            next_id: FIRST_ID,
        }
    }

    fn disposition(&mut self, book: &mut Book, first: u32, last: u32, outcome: &Outcome) {
        let mut id = first;
        loop {
            let (message, delivery) = self.unsettled.remove(&id).expect("no such delivery on this link");
            book.told(delivery, outcome);
            match outcome {
                Outcome::Ack | Outcome::Reject { .. } => assert!(self.gone.insert(message)),
                _ => assert!(self.ready.insert(message)),
            }
            if id == last {
                break;
            }
            id = id.wrapping_add(1);
        }
    }
}

impl Model for Link {
    fn take(&mut self, book: &mut Book, handed: &mut Vec<Handed>) {
        if self.ledger.room() > 0
            && let Some(message) = self.ready.pop_first()
        {
            let delivery = book.taken(message);
            self.unsettled.insert(self.next_id, (message, delivery));
            let token = self.ledger.take(self.next_id).expect("there is room");
            self.next_id = self.next_id.wrapping_add(1);
            handed.push(Handed { delivery, token });
        }
    }

    fn decide(&mut self, book: &mut Book, handed: Handed, outcome: &Outcome) -> Answer {
        let accepted = self.ledger.decide(handed.token, outcome.clone());
        if accepted {
            book.decided(handed.delivery, outcome);
        }
        accepted.into()
    }

    fn flush(&mut self, book: &mut Book, _behind: bool, frames: usize) {
        let mut run = std::mem::take(&mut self.run);
        let mut last: Option<(u32, Outcome)> = None;
        for _ in 0..frames {
            let Some(outcome) = next_range(&mut self.ledger, |id| *id, &mut run) else { break };
            assert!(run.windows(2).all(|ids| ids[0].wrapping_add(1) == ids[1]), "a run has no gaps");
            let number = |id: u32| id.wrapping_sub(FIRST_ID);
            if let Some((last, other)) = last.replace((run[run.len() - 1], outcome.clone())) {
                assert!(number(last) < number(run[0]), "runs come in the order taken");
                assert!(
                    number(last) + 1 < number(run[0]) || other != outcome,
                    "runs are as long as they can be"
                );
            }
            self.disposition(book, run[0], run[run.len() - 1], &outcome);
        }
        self.run = run;
    }

    fn end(&mut self) {
        self.ready.extend(std::mem::take(&mut self.unsettled).into_values().map(|(message, _)| message));
        (self.ledger, self.next_id) = (Ledger::new(self.window), FIRST_ID);
    }

    fn check(&self, book: &Book) {
        assert!(self.unsettled.len() <= self.window);
        assert_eq!(
            self.unsettled.len() + self.ready.len() + self.gone.len(),
            MESSAGES as usize,
            "nothing is lost"
        );
        assert_eq!((self.ledger.open(), self.ledger.decided()), (book.open(), book.untold()));
        assert_eq!(self.ledger.room(), self.window - self.unsettled.len());
    }

    fn is_drained(&self) -> bool {
        self.gone.len() == MESSAGES as usize
    }
}

proptest! {
    #[test]
    fn each_decision_reaches_the_link_once(window in 1..12usize, steps in steps()) {
        run(Link::new(window), steps);
    }
}

#[test]
fn runs_are_as_long_as_holes_and_outcomes_allow() {
    let mut ledger = Ledger::new(10);
    let tokens: Vec<_> = (0..10).map(|id| ledger.take(id).unwrap()).collect();
    for decided in [9, 8, 2, 0, 1, 4, 5] {
        ledger.decide(tokens[decided], Outcome::Ack);
    }
    ledger.decide(tokens[3], Outcome::Release);
    let mut run = Vec::new();
    let mut runs = Vec::new();
    while let Some(outcome) = next_range(&mut ledger, |id| *id, &mut run) {
        runs.push((run[0], run[run.len() - 1], outcome.name()));
    }
    assert_eq!(runs, [(0, 2, "ack"), (3, 3, "release"), (4, 5, "ack"), (8, 9, "ack")]);
}

#[test]
fn different_reasons_are_different_outcomes() {
    let mut ledger = Ledger::new(2);
    for reason in ["one", "other"] {
        let token = ledger.take(u32::from(reason == "other")).unwrap();
        ledger.decide(token, Outcome::reject(reason));
    }
    let mut run = Vec::new();
    assert_eq!(next_range(&mut ledger, |id| *id, &mut run), Some(Outcome::reject("one")));
    assert_eq!(next_range(&mut ledger, |id| *id, &mut run), Some(Outcome::reject("other")));
}
