use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tower_mq_delivery::Outcome;

use super::{Answer, Book, Handed, Model, run, steps};
use crate::source::ledger::{
    Ledger,
    multiple::{Frame, next_frame},
};

const MESSAGES: u64 = 40;

/// A channel of RabbitMQ: prefetch, tags from 1, requeue to the old position. A tag that is not outstanding kills it.
struct RabbitMq {
    window: usize,
    ledger: Ledger<Tag>,
    ready: BTreeSet<u64>,
    outstanding: BTreeMap<u64, (u64, usize)>,
    gone: BTreeSet<u64>,
    last_tag: u64,
}

#[derive(Clone, Copy, Debug)]
struct Tag(u64);

impl RabbitMq {
    fn new(window: usize) -> Self {
        Self {
            window,
            ledger: Ledger::new(window),
            ready: (0..MESSAGES).collect(),
            outstanding: BTreeMap::new(),
            gone: BTreeSet::new(),
            last_tag: 0,
        }
    }

    fn settle(&mut self, book: &mut Book, tag: u64, outcome: &Outcome) {
        let (message, delivery) =
            self.outstanding.remove(&tag).expect("PRECONDITION_FAILED: unknown delivery tag");
        book.told(delivery, outcome);
        match outcome {
            Outcome::Ack | Outcome::Reject { .. } => assert!(self.gone.insert(message)),
            _ => assert!(self.ready.insert(message)),
        }
    }
}

impl Model for RabbitMq {
    fn take(&mut self, book: &mut Book, handed: &mut Vec<Handed>) {
        if self.outstanding.len() < self.window
            && let Some(message) = self.ready.pop_first()
        {
            let delivery = book.taken(message);
            self.last_tag += 1;
            self.outstanding.insert(self.last_tag, (message, delivery));
            let token = self.ledger.take(Tag(self.last_tag)).expect("the prefetch is the window");
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

    fn flush(&mut self, book: &mut Book, behind: bool, frames: usize) {
        for _ in 0..frames {
            match next_frame(&mut self.ledger, behind) {
                None => break,
                Some(Frame::Negative { tag, outcome }) => {
                    assert_ne!(outcome, Outcome::Ack);
                    self.settle(book, tag.0, &outcome);
                }
                Some(Frame::Ack { tag, multiple }) => {
                    assert!(
                        self.outstanding.contains_key(&tag.0),
                        "PRECONDITION_FAILED: unknown delivery tag"
                    );
                    let covered = self.outstanding.range(..tag.0).map(|(tag, _)| *tag).collect::<Vec<_>>();
                    for covered in covered.into_iter().filter(|_| multiple) {
                        self.settle(book, covered, &Outcome::Ack);
                    }
                    self.settle(book, tag.0, &Outcome::Ack);
                }
            }
        }
    }

    fn end(&mut self) {
        self.ready.extend(std::mem::take(&mut self.outstanding).into_values().map(|(message, _)| message));
        (self.ledger, self.last_tag) = (Ledger::new(self.window), 0);
    }

    fn check(&self, book: &Book) {
        assert!(self.outstanding.len() <= self.window);
        assert_eq!(
            self.outstanding.len() + self.ready.len() + self.gone.len(),
            MESSAGES as usize,
            "nothing is lost"
        );
        assert_eq!((self.ledger.open(), self.ledger.decided()), (book.open(), book.untold()));
        assert_eq!(self.ledger.room(), self.window - self.outstanding.len());
    }

    fn is_drained(&self) -> bool {
        self.gone.len() == MESSAGES as usize
    }
}

proptest! {
    #[test]
    fn the_channel_lives_and_each_decision_reaches_the_broker_once(window in 1..12usize, steps in steps()) {
        run(RabbitMq::new(window), steps);
    }
}

fn frames(ledger: &mut Ledger<u64>, behind: bool) -> Vec<Frame<u64>> {
    std::iter::from_fn(|| next_frame(ledger, behind)).collect()
}

#[test]
fn one_frame_acks_the_settled_prefix_after_its_nacks() {
    let mut ledger = Ledger::new(8);
    let tokens: Vec<_> = (1..=6).map(|tag| ledger.take(tag).unwrap()).collect();
    for decided in [5, 3, 2, 0] {
        ledger.decide(tokens[decided], Outcome::Ack);
    }
    ledger.decide(tokens[1], Outcome::Release);
    let nack = Frame::Negative { tag: 2, outcome: Outcome::Release };
    assert_eq!(frames(&mut ledger, false), [nack, Frame::Ack { tag: 4, multiple: true }]);
    assert_eq!(frames(&mut ledger, false), []);
    assert_eq!(frames(&mut ledger, true), [Frame::Ack { tag: 6, multiple: false }]);
    ledger.decide(tokens[4], Outcome::Ack);
    assert_eq!(frames(&mut ledger, false), [Frame::Ack { tag: 5, multiple: false }]);
}

#[test]
fn nothing_but_nacks_sends_no_ack() {
    let mut ledger = Ledger::new(2);
    for tag in 1..=2 {
        let token = ledger.take(tag).unwrap();
        ledger.decide(token, Outcome::reject("broken"));
    }
    assert!(frames(&mut ledger, true).iter().all(|frame| matches!(frame, Frame::Negative { .. })));
}

#[test]
fn acks_that_come_after_a_hole_was_filled_fit_in_one_frame() {
    let mut ledger = Ledger::new(1000);
    let tokens: Vec<_> = (1..=1000).map(|tag| ledger.take(tag).unwrap()).collect();
    for token in tokens.into_iter().rev() {
        ledger.decide(token, Outcome::Ack);
    }
    assert_eq!(frames(&mut ledger, false), [Frame::Ack { tag: 1000, multiple: true }]);
}
