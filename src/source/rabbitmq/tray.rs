//! What was taken from the broker and not yet handed out.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use tower_mq_delivery::{Acker, Delivery, Message, Token};

use super::settle::Settler;

/// Between the task that owns the connection and the stream. It holds at most a window: the broker sees to that.
#[derive(Default)]
pub(super) struct Tray(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    stream: Option<Waker>,
    ended: bool,
}

/// A delivery that nobody is responsible for yet.
pub(super) struct Waiting {
    pub(super) message: Message,
    pub(super) token: Token,
    pub(super) settler: Arc<Settler>,
}

impl Tray {
    /// Puts deliveries behind those that are there.
    pub(super) fn extend(&self, taken: &mut Vec<Waiting>) {
        let mut inner = self.0.lock();
        inner.waiting.extend(taken.drain(..));
        let stream = inner.stream.take();
        drop(inner);
        wake(stream);
    }

    /// The next delivery. `None`: there will be no more.
    pub(super) fn poll_next(&self, cx: &Context<'_>, paused: bool) -> Poll<Option<Delivery>> {
        let mut inner = self.0.lock();
        while !paused && let Some(Waiting { message, token, settler }) = inner.waiting.pop_front() {
            // Its connection ended a moment ago: it comes again.
            if !message.is_stale() {
                return Poll::Ready(Some(Delivery::new(message, Acker::new(settler, token))));
            }
        }
        if inner.ended {
            return Poll::Ready(None);
        }
        if !inner.stream.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inner.stream = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Takes everything away again, and says how much it was.
    pub(super) fn clear(&self) -> usize {
        let waiting = mem::take(&mut self.0.lock().waiting);
        waiting.len()
    }

    /// There will be no more.
    pub(super) fn end(&self) {
        let mut inner = self.0.lock();
        inner.ended = true;
        let stream = inner.stream.take();
        drop(inner);
        wake(stream);
    }
}

fn wake(stream: Option<Waker>) {
    if let Some(stream) = stream {
        stream.wake();
    }
}
