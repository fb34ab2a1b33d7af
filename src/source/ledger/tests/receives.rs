use std::collections::BTreeSet;

use proptest::prelude::*;
use tower_mq_delivery::{Outcome, Token};

use super::{Answer, Book, Handed, Model, run, steps};
use crate::source::ledger::receives::Receives;

const MESSAGES: usize = 15;
const BATCH: usize = 4;

/// A FIFO topic of RocketMQ with two queues: a receive locks its queue until all of it is settled; then the queue goes
/// on from the first that was not acked.
struct Topic {
    window: usize,
    receives: Receives<(usize, usize)>,
    queues: [Queue; 2],
    turn: usize,
}

#[derive(Default)]
struct Queue {
    /// The first offset that is not done.
    next: usize,
    done: BTreeSet<usize>,
    held: Vec<Member>,
}

struct Member {
    offset: usize,
    delivery: usize,
    told: Option<Outcome>,
}

impl Topic {
    fn new(window: usize) -> Self {
        Self { window, receives: Receives::new(window), queues: Default::default(), turn: 0 }
    }

    fn settle(&mut self, book: &mut Book, (queue, delivery): (usize, usize), outcome: Outcome) {
        book.told(delivery, &outcome);
        let queue = &mut self.queues[queue];
        let member = queue.held.iter().position(|member| member.delivery == delivery);
        let member = member.expect("INVALID_RECEIPT_HANDLE: the receive is over");
        let given_back = |member: &Member| {
            member.told.as_ref().is_some_and(|told| matches!(told, Outcome::Release | Outcome::Retry { .. }))
        };
        if matches!(outcome, Outcome::Release | Outcome::Retry { .. }) {
            let open = |member: &Member| member.told.is_none();
            assert!(!queue.held[member + 1..].iter().any(open), "the last is given back first");
        } else {
            assert!(!queue.held.iter().any(given_back), "what is done is told before the rest is given back");
        }
        queue.held[member].told = Some(outcome);
        if queue.held.iter().all(|member| member.told.is_some()) {
            queue.unlock();
        }
    }
}

impl Queue {
    fn unlock(&mut self) {
        let done = |member: &&Member| matches!(member.told, Some(Outcome::Ack | Outcome::Reject { .. }));
        let prefix: Vec<_> = self.held.iter().take_while(done).map(|member| member.offset).collect();
        self.next += prefix.len();
        self.done.extend(prefix);
        self.held.clear();
    }
}

impl Model for Topic {
    fn take(&mut self, book: &mut Book, handed: &mut Vec<Handed>) {
        self.turn += 1;
        let number = self.turn % 2;
        let queue = &mut self.queues[number];
        if !queue.held.is_empty() {
            return;
        }
        let mut tokens: Vec<Token> = Vec::new();
        let too_many = vec![(number, 0); self.receives.room() + 1];
        assert!(!self.receives.take(too_many.into_iter(), &mut tokens) && tokens.is_empty());
        let end = MESSAGES.min(queue.next + BATCH.min(self.receives.room()));
        for offset in queue.next..end {
            let delivery = book.taken((number * MESSAGES + offset) as u64);
            queue.held.push(Member { offset, delivery, told: None });
        }
        let members = queue.held.iter().map(|member| (number, member.delivery));
        assert!(self.receives.take(members, &mut tokens));
        let members = queue.held.iter().zip(tokens);
        handed.extend(members.map(|(member, token)| Handed { delivery: member.delivery, token }));
    }

    fn decide(&mut self, book: &mut Book, handed: Handed, outcome: &Outcome) -> Answer {
        let accepted = self.receives.decide(handed.token, outcome.clone());
        if accepted && matches!(outcome, Outcome::Release | Outcome::Retry { .. }) {
            let holds = |queue: &&Queue| queue.held.iter().any(|member| member.delivery == handed.delivery);
            let queue = self.queues.iter().find(holds).expect("it is held");
            for member in &queue.held {
                if book.records[member.delivery].decision.is_none() {
                    book.decided(member.delivery, outcome);
                }
            }
        } else if accepted {
            book.decided(handed.delivery, outcome);
        }
        accepted.into()
    }

    fn flush(&mut self, book: &mut Book, _behind: bool, frames: usize) {
        for _ in 0..frames {
            let Some((tag, outcome)) = self.receives.next_frame() else { break };
            self.settle(book, tag, outcome);
        }
    }

    fn end(&mut self) {
        self.queues.iter_mut().for_each(Queue::unlock);
        self.receives = Receives::new(self.window);
    }

    fn check(&self, book: &Book) {
        let unsettled =
            self.queues.iter().flat_map(|queue| &queue.held).filter(|member| member.told.is_none()).count();
        assert!(unsettled <= self.window);
        assert_eq!(self.receives.room(), self.window - unsettled);
        assert_eq!((self.receives.open(), self.receives.decided()), (book.open(), book.untold()));
    }

    fn is_drained(&self) -> bool {
        self.queues.iter().all(|queue| queue.done.len() == MESSAGES)
    }
}

proptest! {
    #[test]
    fn a_queue_goes_on_from_the_first_that_was_not_acked(window in 1..12usize, steps in steps()) {
        run(Topic::new(window), steps);
    }
}

#[test]
fn a_release_gives_back_what_is_not_settled_last_first_and_touches_no_other_receive() {
    let mut receives = Receives::new(9);
    let mut tokens = Vec::new();
    assert!(receives.take(["a0", "a1"].into_iter(), &mut tokens));
    assert!(receives.take(["b0", "b1", "b2", "b3", "b4"].into_iter(), &mut tokens));
    assert!(receives.take(["c0"].into_iter(), &mut tokens));
    let [a0, _, b0, b1, b2, b3, _, c0] = tokens[..] else { unreachable!() };
    assert!(receives.decide(b2, Outcome::Release));
    assert!(!receives.decide(b1, Outcome::Ack), "given back on behalf of another");
    assert!(!receives.decide(b0, Outcome::Ack) && !receives.decide(b3, Outcome::Release));
    assert_eq!((receives.open(), receives.decided(), receives.room()), (3, 5, 1));
    assert!(receives.decide(c0, Outcome::Ack) && receives.decide(a0, Outcome::Ack));
    let frames: Vec<_> = std::iter::from_fn(|| receives.next_frame()).collect();
    let tags: Vec<_> = frames.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, ["c0", "a0", "b4", "b3", "b2", "b1", "b0"]);
    assert!(frames[2..].iter().all(|(_, outcome)| *outcome == Outcome::Release));
}

#[test]
fn acks_before_and_behind_the_released_one_are_told_first() {
    let mut receives = Receives::new(4);
    let mut tokens = Vec::new();
    assert!(receives.take([0, 1, 2, 3].into_iter(), &mut tokens));
    receives.decide(tokens[0], Outcome::Ack);
    receives.decide(tokens[2], Outcome::Ack);
    receives.decide(tokens[1], Outcome::Release);
    let tags: Vec<_> = std::iter::from_fn(|| receives.next_frame()).map(|(tag, _)| tag).collect();
    assert_eq!(tags, [0, 2, 3, 1]);
}
