//! A consumer as the broker sees it.

use std::{sync::Arc, task::Waker};

use tower_mq_delivery::Generation;

use super::{line::Line, wakes::Wakes};
use crate::source::Control;

/// A consumer as the broker sees it.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) window: usize,
    /// How many are handed out and not settled.
    pub(super) held: usize,
    pub(super) generation: Arc<Generation>,
    pub(super) connected: bool,
    /// The consumer was dropped: the subscription ends with its last settlement.
    pub(super) abandoned: bool,
    pub(super) control: Control,
    pub(super) rest: Rest,
    pub(super) waker: Option<Waker>,
}

/// What a consumer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing: it is under way.
    None,
    /// A message: it is in the queue of those that wait.
    Message,
    /// Room in its window.
    Room,
    /// The settlement of all it holds.
    Settled,
    /// An end of its generation, or of the broker.
    End,
}

impl Subscription {
    pub(super) fn is_resting(&self) -> bool {
        self.rest != Rest::None
    }

    pub(super) fn wake(&mut self) -> Option<Waker> {
        self.rest = Rest::None;
        self.waker.take()
    }

    /// `me`: the number of this subscription.
    pub(super) fn disconnect(&mut self, me: usize, line: &mut Line, wakes: &mut Wakes) -> Option<Control> {
        // Under the lock: nobody may take a message again while its old delivery still counts as live.
        self.generation.end();
        if std::mem::take(&mut self.held) > 0 {
            line.put_back_all(me);
        }
        wakes.add(self.wake());
        std::mem::replace(&mut self.connected, false)
            .then(|| self.control.clone())
            .filter(|_| !self.abandoned)
    }
}
