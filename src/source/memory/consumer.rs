//! A consumer of one queue.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_mq_delivery::{Acker, Capabilities, Delivery, Generation, Settle};

use super::{
    broker::{self, Broker},
    connection::Connection,
    state::Queue,
    subscription::Rest,
    wakes::Wakes,
};
use crate::source::{Control, Demand, Handle, Source, SourceError};

/// Consumes a queue of the in-process broker: a [`Source`]. Made by [`Queue::consume`](super::Queue::consume).
///
/// It takes from the queue when it is polled, and holds nothing of its own: what is not handed out is in the queue, for
/// everybody. So closing with `Finish` and with `Release` is the same here.
///
/// Dropped, it takes nothing more. Deliveries that are out can still be settled.
pub struct Consumer {
    broker: Broker,
    queue: usize,
    subscription: usize,
    connection: Arc<Connection>,
    /// The connection again, as what deliveries need.
    settle: Arc<dyn Settle>,
    control: Control,
    delay: Option<Pin<Box<Sleep>>>,
    /// Nothing more is taken.
    ended: bool,
    /// The broker does not know it any more.
    gone: bool,
}

/// What polling the queue came to.
enum Next {
    Delivery(Delivery),
    /// A new generation has begun.
    Connected(Arc<Generation>),
    /// Nothing before the consumer is woken, or before this time.
    Nothing(Option<Instant>),
    BrokerClosed,
}

impl Consumer {
    pub(super) fn new(
        broker: Broker,
        queue: usize,
        subscription: usize,
        generation: Arc<Generation>,
        control: Control,
    ) -> Self {
        let connection = Arc::new(Connection::new(broker.clone(), queue, subscription, generation));
        let settle = connection.clone();
        Self {
            broker,
            queue,
            subscription,
            connection,
            settle,
            control,
            delay: None,
            ended: false,
            gone: false,
        }
    }

    /// What this queue can do, as it was set up when it was consumed.
    pub fn capabilities(&self) -> &Capabilities {
        self.control.origin().capabilities()
    }

    /// A fault: this consumer loses its connection, as in
    /// [`Broker::disconnect_consumers`](super::Broker::disconnect_consumers).
    pub fn drop_connection(&mut self) {
        let lost = self.with(|queue, subscription, wakes| queue.disconnect_one(subscription, wakes));
        broker::report_lost(lost);
    }

    /// Does something to the queue under the lock, and wakes whom that concerns.
    fn with<T>(&self, change: impl FnOnce(&mut Queue, usize, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::default();
        let result = change(&mut self.broker.lock().queues[self.queue], self.subscription, &mut wakes);
        wakes.wake();
        result
    }

    /// Takes the next delivery; `paused`: none, but connects.
    #[inline(always)]
    fn poll_queue(&mut self, paused: bool, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        loop {
            match self.next(paused, cx) {
                Next::Delivery(delivery) => return Poll::Ready(Some(delivery)),
                Next::Connected(generation) => self.connected(generation),
                Next::BrokerClosed => return Poll::Ready(None),
                Next::Nothing(None) => return Poll::Pending,
                Next::Nothing(Some(until)) => ready!(self.poll_delay(until, cx)),
            }
        }
    }

    #[inline(always)]
    fn next(&mut self, paused: bool, cx: &Context<'_>) -> Next {
        let mut wakes = Wakes::default();
        let mut state = self.broker.lock();
        if state.closed {
            return Next::BrokerClosed;
        }
        let queue = &mut state.queues[self.queue];
        let Some(this) = queue.subscriptions.get_mut(self.subscription) else { return Next::BrokerClosed };
        if !this.connected {
            this.connected = true;
            this.generation =
                Generation::numbered(self.control.origin().clone(), this.generation.number() + 1);
            return Next::Connected(this.generation.clone());
        }
        let rest = if paused {
            Rest::End
        } else if this.held >= this.window {
            Rest::Room
        } else {
            queue.line.wake_delayed();
            if let Some((token, letter)) = queue.line.take(self.subscription) {
                let (message, replaced) = letter.deliver(self.connection.generation.clone());
                this.held += 1;
                if this.is_resting() {
                    queue.stir(self.subscription);
                }
                queue.wake_next(&mut wakes);
                drop(state);
                drop(replaced);
                wakes.wake();
                return Next::Delivery(Delivery::new(message, Acker::new(self.settle.clone(), token as u64)));
            }
            Rest::Message
        };
        let replaced = queue.rest(self.subscription, rest, cx.waker(), &mut wakes);
        let until = queue.line.due().filter(|_| rest == Rest::Message);
        drop(state);
        drop(replaced);
        wakes.wake();
        Next::Nothing(until)
    }

    #[cold]
    fn connected(&mut self, generation: Arc<Generation>) {
        let number = generation.number();
        self.connection =
            Arc::new(Connection::new(self.broker.clone(), self.queue, self.subscription, generation));
        self.settle = self.connection.clone();
        self.control.connected(number);
    }

    /// Ready when the time has come.
    fn poll_delay(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let delay = self.delay.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if delay.deadline() != until {
            delay.as_mut().reset(until);
        }
        delay.as_mut().poll(cx)
    }

    /// Takes nothing more.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.delay = None;
            self.with(|queue, subscription, wakes| {
                queue.stir(subscription);
                queue.wake_next(wakes);
            });
        }
    }
}

impl Stream for Consumer {
    type Item = Delivery;

    #[inline(always)]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = self.get_mut();
        while !this.ended {
            let demand = this.control.demand();
            let polled = match demand {
                Demand::Take | Demand::Pause => this.poll_queue(demand == Demand::Pause, cx),
                Demand::Close(_) => Poll::Ready(None),
            };
            match polled {
                Poll::Ready(Some(delivery)) => return Poll::Ready(Some(delivery)),
                Poll::Ready(None) => this.end(),
                // Asked once more after the waker is known: a change in between is not missed.
                Poll::Pending if this.control.poll_demand(cx) == demand => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(None)
    }
}

#[diagnostic::do_not_recommend]
impl Source for Consumer {
    fn handle(&self) -> Handle {
        self.control.handle()
    }

    fn poll_closed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        let this = self.get_mut();
        this.end();
        if this.gone {
            return Poll::Ready(Ok(()));
        }
        let mut wakes = Wakes::default();
        let mut state = this.broker.lock();
        let asked = this.control.demand().is_close();
        if state.closed && !asked {
            return Poll::Ready(Err(broker::closed(this.control.origin().name())));
        }
        let queue = &mut state.queues[this.queue];
        if queue.subscriptions.get_mut(this.subscription).is_some_and(|this| this.held > 0) {
            let replaced = queue.rest(this.subscription, Rest::Settled, cx.waker(), &mut wakes);
            drop(state);
            drop(replaced);
            wakes.wake();
            return Poll::Pending;
        }
        let removed = queue.subscriptions.try_remove(this.subscription);
        drop(state);
        drop(removed);
        this.gone = true;
        this.control.closed(None);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        self.end();
        let (was_closed, abandoned);
        {
            let mut state = self.broker.lock();
            was_closed = state.closed;
            abandoned = state.queues[self.queue].abandon(self.subscription);
        }
        drop(abandoned);
        if !was_closed {
            self.control.closed(None);
        }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("queue", &self.control.origin().name())
            .field("generation", &self.connection.generation.number())
            .finish_non_exhaustive()
    }
}
