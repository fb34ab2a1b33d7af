//! RocketMQ 5, FIFO groups: what one receive brought of a queue is held, and comes again, together.
//!
//! The broker locks the queue until every member of the receive is settled, then goes on from the first that was not
//! acked: what stood behind that one comes again, acked or not. So acks and rejects are told singly, and giving back
//! one member means giving back every member that is not settled, last first, so that the queue is free only when the
//! first of them is back. A decision on one that was given back on behalf of another comes too late, and is refused.

use tower_mq_delivery::{Outcome, Token};

use super::Ledger;

/// The receives of one generation. `T` is what the broker knows a message by.
#[derive(Debug)]
pub(crate) struct Receives<T> {
    ledger: Ledger<Member<T>>,
    receives: u64,
}

#[derive(Debug)]
struct Member<T> {
    receive: u64,
    tag: T,
}

impl<T> Receives<T> {
    /// At most `window` messages at a time.
    pub(crate) fn new(window: usize) -> Self {
        Self { ledger: Ledger::new(window), receives: 0 }
    }

    /// Takes what one receive brought of one queue, in the order of the queue; their tokens go to the end of
    /// `tokens`. `false`: there is no room for all of it, and nothing was taken. Ask the broker for no more than
    /// [`room`](Self::room).
    pub(crate) fn take(
        &mut self,
        members: impl ExactSizeIterator<Item = T>,
        tokens: &mut Vec<Token>,
    ) -> bool {
        if members.len() > self.room() {
            return false;
        }
        let receive = self.receives;
        self.receives += 1;
        // Taken in one go, the members of a receive are neighbours in the ledger.
        tokens.extend(members.map_while(|tag| self.ledger.take(Member { receive, tag })));
        true
    }

    /// Decides a message. `false` as in [`Ledger::decide`], or it was given back on behalf of another.
    ///
    /// # Cost
    /// Giving back looks at each member of the receive once.
    pub(crate) fn decide(&mut self, token: Token, outcome: Outcome) -> bool {
        let Some(place) = self.ledger.find(token) else { return false };
        match outcome {
            Outcome::Ack | Outcome::Reject { .. } => self.ledger.decide_place(place, outcome),
            _ => self.give_back(place, &outcome),
        }
        true
    }

    fn give_back(&mut self, place: u32, outcome: &Outcome) {
        let receive = self.receive(place);
        let mut last = place;
        while let Some(after) = self.ledger.taken.after(last)
            && self.receive(after) == receive
        {
            last = after;
        }
        let mut next = Some(last);
        while let Some(place) = next
            && self.receive(place) == receive
        {
            next = self.ledger.taken.before(place);
            if self.ledger.places[place as usize].outcome.is_none() {
                self.ledger.decide_place(place, outcome.clone());
            }
        }
    }

    fn receive(&self, place: u32) -> Option<u64> {
        self.ledger.places[place as usize].tag.as_ref().map(|member| member.receive)
    }

    /// The next message to tell the broker of, and what: acks first; then the others in the order decided, those of a
    /// receive that is given back last first. Send it before the next call.
    pub(crate) fn next_frame(&mut self) -> Option<(T, Outcome)> {
        let (member, outcome) = self.ledger.pop_acked().or_else(|| self.ledger.pop_negative())?;
        Some((member.tag, outcome))
    }

    /// How many more messages can be taken.
    pub(crate) fn room(&self) -> usize {
        self.ledger.room()
    }

    /// How many are taken and not decided.
    pub(crate) fn open(&self) -> usize {
        self.ledger.open()
    }

    /// How many are decided, and the broker has not been told.
    pub(crate) fn decided(&self) -> usize {
        self.ledger.decided()
    }
}
