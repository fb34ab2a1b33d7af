//! The broker: what it stores, and how it fails.

use std::{borrow::Cow, fmt, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tower_mq_delivery::{BoxError, Message, Publication, Receipt, SharedError};

use super::{
    letter,
    publisher::{PublishError, Publisher},
    queue::Queue,
    state::State,
    wakes::Wakes,
};
use crate::source::{Control, SourceError, SourceErrorKind};

/// A broker inside this process. Clones are the same broker.
///
/// A queue is made when it is first used, by either side.
///
/// Consumers keep their broker alive; what it stores is gone with the last of them and the last clone.
#[derive(Clone, Default)]
pub struct Broker {
    state: Arc<Mutex<State>>,
}

impl Broker {
    /// An empty broker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets up a queue, and consumes it: see [`Queue::consume`].
    pub fn queue(&self, name: impl Into<Cow<'static, str>>) -> Queue {
        Queue::new(self.clone(), name.into())
    }

    /// Publishes as a service: for dead-letter layers, and for stacks of a producer.
    pub fn publisher(&self) -> Publisher {
        Publisher::new(self.clone())
    }

    /// Stores a message behind all others of the queue.
    ///
    /// # Errors
    /// If the broker was [closed](Self::close).
    pub fn publish(&self, queue: &str, message: Message) -> Result<Receipt, PublishError> {
        self.store(queue, Publication::new(message))
    }

    pub(super) fn store(&self, queue: &str, publication: Publication) -> Result<Receipt, PublishError> {
        let (message, mut wakes) = (letter::stored(publication), Wakes::default());
        {
            let mut state = self.lock();
            if state.closed {
                return Err(PublishError::Closed { queue: queue.into() });
            }
            let queue = state.queue(queue);
            state.store(queue, message, &mut wakes);
        }
        wakes.wake();
        Ok(Receipt::new())
    }

    /// How many messages a queue has: ready, delayed, and handed out without being settled.
    pub fn len(&self, queue: &str) -> usize {
        self.lock().find(queue).map_or(0, |queue| queue.len())
    }

    /// Waits until a queue is empty: until every message that was ever in it is acked, or rejected. The signal for a
    /// graceful shutdown of a program that ends with its work.
    ///
    /// It does not borrow the broker. A queue that is not there is empty.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn drained(&self, queue: impl Into<Cow<'static, str>>) -> impl Future<Output = ()> + Send + 'static {
        let (broker, name) = (self.clone(), queue.into());
        async move {
            loop {
                let drained = {
                    let mut state = broker.lock();
                    let index = state.queue(&name);
                    let queue = &mut state.queues[index];
                    // Heard from here on: it is made before the look, and under the lock.
                    let drained = queue.drained().clone().notified_owned();
                    if queue.len() == 0 {
                        return;
                    }
                    drained
                };
                drained.await;
            }
        }
    }

    /// Where the messages of a queue are.
    pub fn depth(&self, queue: &str) -> Depth {
        let mut state = self.lock();
        let Some(queue) = state.find(queue) else { return Depth::default() };
        queue.line.wake_delayed();
        Depth {
            ready: queue.line.ready(),
            delayed: queue.line.delayed(),
            unsettled: queue.unsettled(),
            dead_lettered: queue.dead_lettered,
            discarded: queue.discarded,
        }
    }

    /// A fault: every consumer loses its connection.
    ///
    /// What they hold and have not settled goes back to its place, marked as redelivered; settlements of it are
    /// [stale](tower_mq_delivery::Settlement::Stale). Each consumer is
    /// [reconnecting](crate::source::State::Reconnecting) until it is polled next, and then begins a new generation.
    pub fn disconnect_consumers(&self) {
        let mut wakes = Wakes::default();
        let lost: Vec<_> =
            self.lock().queues.iter_mut().flat_map(|queue| queue.disconnect(&mut wakes)).collect();
        report_lost(lost);
        wakes.wake();
    }

    /// A fault: the broker goes away for good. Consumers end with an error ([`SourceErrorKind::Closed`]), publishing
    /// fails, and what is stored can only be counted.
    pub fn close(&self) {
        let mut wakes = Wakes::default();
        let mut lost = Vec::new();
        {
            let mut state = self.lock();
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            for queue in &mut state.queues {
                lost.extend(queue.close(&mut wakes));
            }
        }
        lost.iter().for_each(tell_closed);
        wakes.wake();
    }

    /// Whether it was [closed](Self::close).
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let queues: Vec<_> = state.queues.iter().map(|queue| queue.name.clone()).collect();
        f.debug_struct("Broker")
            .field("queues", &queues)
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

/// Why a consumer of `queue` ended.
pub(super) fn closed(queue: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Closed, format!("the in-process broker of queue `{queue}` was closed"))
}

/// Tells the health of a consumer that the broker is gone.
pub(super) fn tell_closed(control: &Control) {
    let error = BoxError::from(closed(control.origin().name()));
    control.closed(Some(SharedError::from(error)));
}

/// Tells the health of consumers that lost their connection.
pub(super) fn report_lost(lost: impl IntoIterator<Item = Control>) {
    let error = SharedError::from(BoxError::from("the in-process broker dropped the connection"));
    for control in lost {
        control.reconnecting(Instant::now(), 0, error.clone());
    }
}

/// Where the messages of a queue are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Waiting for a consumer; in a grouped queue also for another message of their key.
    pub ready: usize,
    /// Waiting for the delay of a retry to be over.
    pub delayed: usize,
    /// Handed out and not settled.
    pub unsettled: usize,
    /// Moved to the dead letters, so far.
    pub dead_lettered: u64,
    /// Rejected and discarded, so far.
    pub discarded: u64,
}
