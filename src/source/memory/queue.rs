//! How a queue is set up.

use std::{borrow::Cow, sync::Arc};

use tower_mq_delivery::{Attempts, Capabilities, Origin};

use super::{
    broker::{Broker, tell_closed},
    consumer::Consumer,
    state::{DeadLetters, State},
    wakes::Wakes,
};
use crate::source::Control;

/// Sets up a queue. What is not set stays as it is, or as its default says.
///
/// All but the window belongs to the queue, whoever set it: the last one counts.
#[derive(Clone, Debug)]
#[must_use = "a queue is set up when it is declared or consumed"]
pub struct Queue {
    broker: Broker,
    name: Cow<'static, str>,
    window: usize,
    dead_letters: Option<DeadLetters>,
    max_attempts: Option<u32>,
    grouped: bool,
}

impl Queue {
    pub(super) fn new(broker: Broker, name: Cow<'static, str>) -> Self {
        Self { broker, name, window: 256, dead_letters: None, max_attempts: None, grouped: false }
    }

    /// The most deliveries that this consumer takes and has not settled; at least 1. Default: 256.
    pub fn window(mut self, deliveries: usize) -> Self {
        self.window = deliveries.max(1);
        self
    }

    /// The queue that rejected messages are moved to. Default: the name of this queue with `.dead` behind it.
    ///
    /// A dead letter is the message with three headers more: [`DEAD_LETTER_REASON`](super::DEAD_LETTER_REASON),
    /// [`DEAD_LETTER_ATTEMPTS`](super::DEAD_LETTER_ATTEMPTS) and [`DEAD_LETTER_QUEUE`](super::DEAD_LETTER_QUEUE). In
    /// its new queue its attempts are counted from 1 again.
    pub fn dead_letters(mut self, queue: impl Into<Cow<'static, str>>) -> Self {
        self.dead_letters = Some(DeadLetters::To(queue.into().into()));
        self
    }

    /// Rejected messages are gone. They are counted: [`Depth::discarded`](super::Depth::discarded).
    pub fn discard_rejects(mut self) -> Self {
        self.dead_letters = Some(DeadLetters::Nowhere);
        self
    }

    /// After so many failed attempts, a retry becomes a reject; at least 1. Default: any number of attempts.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Message groups: the messages of one key are handed out one after the other, each when the one before is done
    /// with, whoever consumes. A retry with a delay holds up its key. Messages without a key are in no group.
    ///
    /// It cannot be undone. Deliveries that are out when groups begin are all finished before their keys go on.
    ///
    /// # Order
    /// Nothing gives up the order of a key, not even redelivery.
    pub fn grouped(mut self) -> Self {
        self.grouped = true;
        self
    }

    /// Sets up the queue without consuming it.
    pub fn declare(self) {
        let mut wakes = Wakes::default();
        {
            let mut state = self.broker.lock();
            self.set_up(&mut state, &mut wakes);
        }
        wakes.wake();
    }

    /// Sets up the queue, and consumes it. Several consumers share a queue; those that wait are served in turn.
    #[must_use = "a consumer does nothing unless it is polled"]
    pub fn consume(self) -> Consumer {
        let mut wakes = Wakes::default();
        let (closed, control, queue, subscription, generation);
        {
            let mut state = self.broker.lock();
            closed = state.closed;
            queue = self.set_up(&mut state, &mut wakes);
            let queue = &mut state.queues[queue];
            let capabilities = capabilities(queue.line.is_grouped());
            let origin = Origin::new(self.name, "memory", self.window, capabilities);
            control = Control::new(Arc::new(origin));
            (subscription, generation) = queue.subscribe(self.window, control.clone());
        }
        wakes.wake();
        match closed {
            true => tell_closed(&control),
            false => control.connected(generation.number()),
        }
        Consumer::new(self.broker, queue, subscription, generation, control)
    }

    fn set_up(&self, state: &mut State, wakes: &mut Wakes) -> usize {
        let index = state.queue(&self.name);
        let queue = &mut state.queues[index];
        if let Some(dead_letters) = &self.dead_letters {
            queue.dead_letters = dead_letters.clone();
        }
        queue.max_attempts = self.max_attempts.or(queue.max_attempts);
        if self.grouped {
            queue.line.group();
            queue.wake_next(wakes);
        }
        index
    }
}

fn capabilities(grouped: bool) -> Capabilities {
    let mut capabilities = Capabilities::unknown();
    capabilities.release_counts = false;
    capabilities.redelivery_disturbs_others = false;
    capabilities.redelivery_breaks_key_order = !grouped;
    capabilities.attempts = Attempts::Broker;
    capabilities.settlement_confirmed = true;
    capabilities.delayed_retry = true;
    capabilities.reject_has_target = true;
    capabilities
}
