//! What the broker knows, all of it under one lock: queues, who consumes them, and what is handed out.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use slab::Slab;
use tokio::{sync::Notify, time::Instant};
use tower_mq_delivery::{Generation, Message, Outcome, Settlement, Token};

use super::{
    letter,
    line::Line,
    subscription::{Rest, Subscription},
    wakes::Wakes,
};
use crate::source::Control;

/// Why a message that failed too often is a dead letter.
pub(super) const NO_ATTEMPTS_LEFT: &str = "no attempts left";

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) closed: bool,
    pub(super) queues: Vec<Queue>,
    names: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: Arc<str>,
    pub(super) line: Line,
    pub(super) dead_letters: DeadLetters,
    pub(super) max_attempts: Option<u32>,
    pub(super) subscriptions: Slab<Subscription>,
    /// For those who wait until it is empty, once there is one.
    drained: Option<Arc<Notify>>,
    /// Those that wait for a message, the one that has waited longest first.
    waiting: VecDeque<usize>,
    pub(super) dead_lettered: u64,
    pub(super) discarded: u64,
}

/// Where rejected messages go.
#[derive(Clone, Debug)]
pub(super) enum DeadLetters {
    /// To the queue of the same name with `.dead` behind it.
    Beside,
    To(Arc<str>),
    Nowhere,
}

/// What became of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decision {
    /// It is stored.
    Stored,
    /// The message had failed too often for another attempt, and was rejected.
    Exhausted,
}

impl State {
    /// The number of this queue, which is made if there is none.
    pub(super) fn queue(&mut self, name: &str) -> usize {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let (index, name) = (self.queues.len(), Arc::<str>::from(name));
        self.names.insert(name.clone(), index);
        self.queues.push(Queue {
            name,
            line: Line::default(),
            dead_letters: DeadLetters::Beside,
            max_attempts: None,
            subscriptions: Slab::new(),
            drained: None,
            waiting: VecDeque::new(),
            dead_lettered: 0,
            discarded: 0,
        });
        index
    }

    /// This queue, if there is one.
    pub(super) fn find(&mut self, name: &str) -> Option<&mut Queue> {
        self.names.get(name).map(|index| &mut self.queues[*index])
    }

    /// Puts a message at the end of the queue.
    pub(super) fn store(&mut self, queue: usize, message: Message, wakes: &mut Wakes) {
        let queue = &mut self.queues[queue];
        queue.line.push(message);
        queue.wake_next(wakes);
    }

    /// What is decided about a delivery of the live generation. `done`: the message, if the queue is done with it, to be
    /// dropped when the lock is released.
    #[inline(always)]
    pub(super) fn settle(
        &mut self,
        (queue, subscription): (usize, usize),
        token: Token,
        outcome: &Outcome,
        done: &mut Option<Message>,
        wakes: &mut Wakes,
    ) -> Result<Decision, Settlement> {
        let index = queue;
        let queue = &mut self.queues[index];
        let number = usize::try_from(token).map_err(|_| Settlement::Stale)?;
        if !queue.give_back(subscription, wakes) {
            return Err(Settlement::Stale);
        }
        match outcome {
            Outcome::Ack => *done = queue.remove(number, wakes),
            Outcome::Retry { after } => return Ok(self.retry(index, number, *after, done, wakes)),
            Outcome::Reject { reason } => self.reject(index, number, reason, done, wakes),
            // Release, and outcomes that are still to be invented: nothing is lost.
            _ => {
                queue.line.put_back(number);
                queue.wake_next(wakes);
            }
        }
        Ok(Decision::Stored)
    }

    fn retry(
        &mut self,
        index: usize,
        number: usize,
        after: Duration,
        done: &mut Option<Message>,
        wakes: &mut Wakes,
    ) -> Decision {
        let queue = &mut self.queues[index];
        let letter = queue.line.letter(number);
        if queue.max_attempts.is_some_and(|most| letter.attempt() >= most) {
            self.reject(index, number, NO_ATTEMPTS_LEFT, done, wakes);
            return Decision::Exhausted;
        }
        letter.failures = letter.failures.saturating_add(1);
        if after.is_zero() {
            queue.line.put_back(number);
            queue.wake_next(wakes);
            return Decision::Stored;
        }
        let now = Instant::now();
        let until = now.checked_add(after).unwrap_or_else(|| now + FOR_EVER);
        let first = queue.line.due().is_none_or(|due| until < due);
        queue.line.put_off(number, until);
        if first {
            // Their timers are set to a later time, or to none.
            queue.wake_all(wakes);
        }
        Decision::Stored
    }

    fn reject(
        &mut self,
        index: usize,
        number: usize,
        reason: &str,
        done: &mut Option<Message>,
        wakes: &mut Wakes,
    ) {
        let queue = &mut self.queues[index];
        let attempt = queue.line.letter(number).attempt();
        *done = queue.remove(number, wakes);
        let Some(message) = done else { return };
        let target = match &queue.dead_letters {
            DeadLetters::Beside => format!("{}.dead", queue.name).into(),
            DeadLetters::To(target) => target.clone(),
            DeadLetters::Nowhere => {
                queue.discarded += 1;
                return;
            }
        };
        queue.dead_lettered += 1;
        let dead = letter::dead(message, &queue.name, attempt, reason);
        let target = self.queue(&target);
        self.store(target, dead, wakes);
    }
}

/// A delay that no clock can express is as good as this one: about thirty years.
const FOR_EVER: Duration = Duration::from_secs(1_000_000_000);

impl Queue {
    pub(super) fn subscribe(&mut self, window: usize, control: Control) -> (usize, Arc<Generation>) {
        let generation = Generation::first(control.origin().clone());
        let subscription = Subscription {
            window,
            held: 0,
            generation: generation.clone(),
            connected: true,
            abandoned: false,
            control,
            rest: Rest::None,
            waker: None,
        };
        (self.subscriptions.insert(subscription), generation)
    }

    /// A message has left the queue.
    #[inline(always)]
    fn remove(&mut self, number: usize, wakes: &mut Wakes) -> Option<Message> {
        let message = self.line.remove(number);
        self.wake_next(wakes);
        if self.drained.is_some() {
            self.tell_drained();
        }
        message
    }

    #[inline(never)]
    fn tell_drained(&self) {
        if let Some(drained) = &self.drained
            && self.len() == 0
        {
            drained.notify_waiters();
        }
    }

    pub(super) fn unsettled(&self) -> usize {
        self.subscriptions.iter().map(|(_, subscription)| subscription.held).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    /// Is told when the queue becomes empty.
    pub(super) fn drained(&mut self) -> &Arc<Notify> {
        self.drained.get_or_insert_default()
    }

    /// A consumer that is not asked to rest any more, or that leaves, does not wait.
    pub(super) fn stir(&mut self, subscription: usize) {
        if let Some(this) = self.subscriptions.get_mut(subscription)
            && std::mem::replace(&mut this.rest, Rest::None) == Rest::Message
        {
            self.waiting.retain(|waiting| *waiting != subscription);
        }
    }

    /// The consumer waits. If it was woken for a message that it does not take, another one is woken.
    ///
    /// Gives back the waker of before, to be dropped when the lock is released: it may be the last of a task that holds
    /// deliveries.
    #[must_use]
    pub(super) fn rest(
        &mut self,
        subscription: usize,
        rest: Rest,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> Option<Waker> {
        let this = self.subscriptions.get_mut(subscription)?;
        let replaced = match &this.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => this.waker.replace(waker.clone()),
        };
        if this.rest != rest {
            self.stir(subscription);
            if rest == Rest::Message {
                self.waiting.push_back(subscription);
            }
            if let Some(this) = self.subscriptions.get_mut(subscription) {
                this.rest = rest;
            }
        }
        if rest != Rest::Message {
            self.wake_next(wakes);
        }
        replaced
    }

    /// The consumer is dropped: what it holds can still be settled. Gives back what is to be dropped when the lock is
    /// released.
    pub(super) fn abandon(&mut self, subscription: usize) -> (Option<Subscription>, Option<Waker>) {
        let Some(this) = self.subscriptions.get_mut(subscription) else { return (None, None) };
        this.abandoned = true;
        let waker = this.waker.take();
        match this.held {
            0 => (self.subscriptions.try_remove(subscription), waker),
            _ => (None, waker),
        }
    }

    /// The consumer holds one less. `false`: there is no such consumer.
    #[inline(always)]
    fn give_back(&mut self, subscription: usize, wakes: &mut Wakes) -> bool {
        let Some(this) = self.subscriptions.get_mut(subscription) else { return false };
        this.held -= 1;
        match this.rest {
            Rest::Room => wakes.add(this.wake()),
            Rest::Settled if this.held == 0 => wakes.add(this.wake()),
            _ => {}
        }
        if this.abandoned && this.held == 0 {
            self.subscriptions.try_remove(subscription);
        }
        true
    }

    /// If there is a message, wakes the consumer that has waited longest.
    #[inline]
    pub(super) fn wake_next(&mut self, wakes: &mut Wakes) {
        if !self.waiting.is_empty() && self.line.is_ready() {
            self.wake_one(wakes);
        }
    }

    #[inline(never)]
    fn wake_one(&mut self, wakes: &mut Wakes) {
        if let Some(next) = self.waiting.pop_front()
            && let Some(subscription) = self.subscriptions.get_mut(next)
        {
            wakes.add(subscription.wake());
        }
    }

    /// Wakes all that wait for a message.
    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        while !self.waiting.is_empty() {
            self.wake_one(wakes);
        }
    }

    /// Ends the generation of every consumer: what they hold goes back to its place.
    pub(super) fn disconnect(&mut self, wakes: &mut Wakes) -> Vec<Control> {
        let mut lost = Vec::new();
        for (number, subscription) in &mut self.subscriptions {
            lost.extend(subscription.disconnect(number, &mut self.line, wakes));
        }
        self.after_disconnect(wakes);
        lost
    }

    /// The same, and for good: whose health is to be told, whether they were connected or not.
    pub(super) fn close(&mut self, wakes: &mut Wakes) -> Vec<Control> {
        self.disconnect(wakes);
        self.wake_all(wakes);
        self.subscriptions.iter().map(|(_, subscription)| subscription.control.clone()).collect()
    }

    /// The same as [`disconnect`](Self::disconnect) for one.
    pub(super) fn disconnect_one(&mut self, subscription: usize, wakes: &mut Wakes) -> Option<Control> {
        let lost = self.subscriptions.get_mut(subscription)?.disconnect(subscription, &mut self.line, wakes);
        self.after_disconnect(wakes);
        lost
    }

    fn after_disconnect(&mut self, wakes: &mut Wakes) {
        let gone = |subscription: &Subscription| subscription.rest == Rest::None;
        let subscriptions = &mut self.subscriptions;
        self.waiting.retain(|waiting| subscriptions.get_mut(*waiting).is_some_and(|s| !gone(s)));
        // What came back may be work for all of them.
        if self.line.is_ready() {
            self.wake_all(wakes);
        }
        self.subscriptions.retain(|_, subscription| !(subscription.abandoned && subscription.held == 0));
    }
}
