//! RocketMQ, queue-based: the broker stores one offset for a queue, and everything before it is done.
//!
//! The offset to commit is that of the first message that is not done, or the one behind the last that was pulled. It
//! never goes back. What is done behind an undone one cannot be told; it gives up its place at the next commit all
//! the same, so that one stuck message does not stop the queue. After a crash it comes again, so how far the queue may
//! run ahead is limited, too: by the span.
//!
//! The broker knows nothing but done. A message to be handled once more here gets a new token by
//! [`again`](Offsets::again); one to be sent back, or to the dead letters, is done when its copy is confirmed.

use tower_mq_delivery::{Outcome, Token};

use super::Ledger;

/// What is held of one queue in one generation.
#[derive(Debug)]
pub(crate) struct Offsets {
    ledger: Ledger<u64>,
    span: u64,
    /// Behind the last one pulled.
    next: u64,
    committed: u64,
}

impl Offsets {
    /// A queue that is pulled from offset `start`, the one the broker has stored. At most `window` messages at a time,
    /// and none that is `span` or more beyond the first that is not done.
    pub(crate) fn new(start: u64, window: usize, span: u64) -> Self {
        Self { ledger: Ledger::new(window), span, next: start, committed: start }
    }

    /// Takes the message at this offset; offsets grow, with gaps where messages were filtered out. `None`: the window
    /// or the span is full, or the offset was pulled before.
    pub(crate) fn take(&mut self, offset: u64) -> Option<Token> {
        let first = self.ledger.first_open().copied().unwrap_or(offset);
        if offset < self.next || offset - first >= self.span {
            return None;
        }
        let token = self.ledger.take(offset)?;
        self.next = offset + 1;
        Some(token)
    }

    /// The broker says that there is nothing for us before this offset.
    pub(crate) fn skip_to(&mut self, offset: u64) {
        self.next = self.next.max(offset);
    }

    /// The message was handled, or its copy is confirmed. `false` as in [`Ledger::decide`].
    pub(crate) fn done(&mut self, token: Token) -> bool {
        self.ledger.decide(token, Outcome::Ack)
    }

    /// A new token for a message that is handled once more; see [`Ledger::again`].
    pub(crate) fn again(&mut self, token: Token) -> Option<Token> {
        self.ledger.again(token)
    }

    /// The offset to commit, if it is beyond the last one. Frees the places of all that is done.
    pub(crate) fn commit(&mut self) -> Option<u64> {
        while self.ledger.pop_acked().is_some() {}
        let offset = self.ledger.first_open().copied().unwrap_or(self.next);
        (offset > self.committed).then(|| {
            self.committed = offset;
            offset
        })
    }

    /// How many more messages can be taken, as far as the window goes.
    pub(crate) fn room(&self) -> usize {
        self.ledger.room()
    }

    /// How many are taken and not done.
    pub(crate) fn open(&self) -> usize {
        self.ledger.open()
    }

    /// How many are done since the last commit.
    pub(crate) fn decided(&self) -> usize {
        self.ledger.decided()
    }
}
