//! Each way to tell a broker, run against a small broker that applies what it is told by its own rules, and fails the
//! test where the real one would close the channel, lose a message or go back.

#![allow(clippy::unwrap_used)]

mod entries;
mod ledger;
mod multiple;
mod offsets;
mod ranges;
mod receives;

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tower_mq_delivery::{Outcome, Token};

/// Every handing out of a message, what was decided about it, and whether the broker knows.
#[derive(Debug, Default)]
struct Book {
    generation: u32,
    records: Vec<Record>,
}

#[derive(Debug)]
struct Record {
    generation: u32,
    message: u64,
    decision: Option<Outcome>,
    told: bool,
}

impl Book {
    /// A message is handed out; the answer names this delivery.
    fn taken(&mut self, message: u64) -> usize {
        let generation = self.generation;
        self.records.push(Record { generation, message, decision: None, told: false });
        self.records.len() - 1
    }

    fn decided(&mut self, delivery: usize, outcome: &Outcome) {
        let old = self.records[delivery].decision.replace(outcome.clone());
        assert_eq!(old, None, "a delivery is decided once");
    }

    /// The broker was told: by the right generation, once, and what was decided.
    fn told(&mut self, delivery: usize, outcome: &Outcome) {
        let record = &mut self.records[delivery];
        assert_eq!(record.generation, self.generation, "nothing of an old generation reaches the broker");
        assert_eq!(record.decision.as_ref(), Some(outcome), "nothing is told but what was decided");
        assert!(!record.told, "the broker is told once");
        record.told = true;
    }

    fn live(&self) -> impl Iterator<Item = (usize, &Record)> {
        self.records.iter().enumerate().filter(|(_, record)| record.generation == self.generation)
    }

    fn is_live(&self, delivery: usize) -> bool {
        self.records[delivery].generation == self.generation
    }

    fn open(&self) -> usize {
        self.live().filter(|(_, record)| record.decision.is_none()).count()
    }

    /// Decided, and the broker does not know.
    fn untold(&self) -> usize {
        self.live().filter(|(_, record)| record.decision.is_some() && !record.told).count()
    }
}

/// A source in small: a ledger, the broker it takes from, and the rules of that broker.
trait Model {
    /// Takes what the broker gives next, if there is room, and notes it in the book.
    fn take(&mut self, book: &mut Book, handed: &mut Vec<Handed>);

    /// Passes the decision to the ledger and, if it was accepted, notes it.
    fn decide(&mut self, book: &mut Book, handed: Handed, outcome: &Outcome) -> Answer;

    /// Tells the broker, with at most this many frames.
    fn flush(&mut self, book: &mut Book, behind: bool, frames: usize);

    /// The connection is lost. The book's generation is the next one already.
    fn end(&mut self);

    /// What must hold after each step.
    fn check(&self, book: &Book);

    /// What must hold after a flush of everything.
    fn check_flushed(&self, book: &Book) {
        assert_eq!(book.untold(), 0, "after a flush the broker knows all that was decided");
    }

    /// The broker has nothing left, and all messages ended as they should.
    fn is_drained(&self) -> bool;
}

/// What a handler holds.
#[derive(Clone, Copy, Debug)]
struct Handed {
    delivery: usize,
    token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    Refused,
    /// It is to be handled once more, under this name.
    Again(Token),
}

impl From<bool> for Answer {
    fn from(accepted: bool) -> Self {
        if accepted { Self::Accepted } else { Self::Refused }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Decide(usize, Outcome),
    /// A handler settles what it, or another, has settled.
    Repeat(usize, Outcome),
    Flush {
        behind: bool,
        frames: usize,
    },
    End,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Ack),
        2 => Just(Outcome::Release), // which is also what a drop becomes
        1 => (0..2u64).prop_map(|after| Outcome::Retry { after: Duration::from_secs(after) }),
        1 => prop_oneof![Just("broken"), Just("unwanted")].prop_map(Outcome::reject),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..6usize).prop_map(Step::Take),
        16 => (any::<usize>(), outcome()).prop_map(|(which, outcome)| Step::Decide(which, outcome)),
        2 => (any::<usize>(), outcome()).prop_map(|(which, outcome)| Step::Repeat(which, outcome)),
        4 => (any::<bool>(), prop_oneof![1..4usize, Just(usize::MAX)])
            .prop_map(|(behind, frames)| Step::Flush { behind, frames }),
        1 => Just(Step::End),
    ];
    vec(step, 0..160)
}

/// Runs the steps, then drains the broker with nothing but acks.
fn run(mut model: impl Model, steps: Vec<Step>) {
    let book = &mut Book::default();
    let (mut handed, mut settled) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Take(times) => (0..times).for_each(|_| model.take(book, &mut handed)),
            Step::Decide(which, outcome) if !handed.is_empty() => {
                let which = handed.remove(which % handed.len());
                decide(&mut model, book, which, &outcome, &mut handed);
                settled.push(which);
            }
            Step::Repeat(which, outcome) if !settled.is_empty() => {
                let Handed { delivery, token } = settled[which % settled.len()];
                let accepted = model.decide(book, Handed { delivery, token }, &outcome);
                assert_eq!(
                    accepted,
                    Answer::Refused,
                    "a token is used once, also after its place was used again"
                );
            }
            Step::Decide(..) | Step::Repeat(..) => {}
            Step::Flush { behind, frames } => model.flush(book, behind, frames),
            Step::End => {
                book.generation += 1;
                model.end();
            }
        }
        model.check(book);
    }
    model.flush(book, true, usize::MAX);
    model.check(book);
    model.check_flushed(book);
    for _ in 0..10_000 {
        if model.is_drained() {
            return;
        }
        model.take(book, &mut handed);
        while let Some(next) = handed.pop() {
            decide(&mut model, book, next, &Outcome::Ack, &mut handed);
        }
        model.flush(book, true, usize::MAX);
        model.check(book);
    }
    panic!("the broker still has messages, or waits for a settlement");
}

fn decide(
    model: &mut impl Model,
    book: &mut Book,
    next: Handed,
    outcome: &Outcome,
    handed: &mut Vec<Handed>,
) {
    // The generation's owner would not even ask the new ledger; the ledger refuses by itself, too.
    let expected = book.is_live(next.delivery) && book.records[next.delivery].decision.is_none();
    let answer = model.decide(book, next, outcome);
    assert_eq!(
        answer != Answer::Refused,
        expected,
        "what is live and undecided can be decided, nothing else"
    );
    if let Answer::Again(token) = answer {
        handed.push(Handed { token, ..next });
    }
}
