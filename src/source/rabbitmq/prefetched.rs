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
pub(super) struct Prefetched(Mutex<Inner>);

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

impl Prefetched {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_test::{assert_pending, assert_ready, task};
    use tower_mq_delivery::{Capabilities, Generation, Origin, Outcome};

    use super::*;
    use crate::source::{
        Control,
        rabbitmq::{settle::Taken, tried::Tried},
    };

    fn settler() -> Arc<Settler> {
        let origin = Arc::new(Origin::new("orders", "rabbitmq", 4, Capabilities::unknown()));
        let generation = Generation::first(origin.clone());
        Arc::new(Settler::new(generation, Control::new(origin), Arc::new(Tried::new(4)), None))
    }

    fn waiting(settler: &Arc<Settler>, tag: u64) -> Waiting {
        let taken = Taken { tag, fingerprint: None, attempt: 1, redelivered: false };
        let token = settler.take(taken).expect("there is room");
        let message = Message::builder(tag.to_string()).generation(settler.generation().clone()).build();
        Waiting { message, token, settler: settler.clone() }
    }

    #[test]
    fn it_hands_out_in_order_and_wakes_whoever_waits() {
        let (prefetched, settler) = (Prefetched::default(), settler());
        let mut stream = task::spawn(());
        assert_pending!(stream.enter(|cx, _| prefetched.poll_next(cx, false)));
        prefetched.extend(&mut vec![waiting(&settler, 1), waiting(&settler, 2)]);
        assert!(stream.is_woken());
        assert_pending!(stream.enter(|cx, _| prefetched.poll_next(cx, true)), "it is paused");
        for expected in ["1", "2"] {
            let delivery = assert_ready!(stream.enter(|cx, _| prefetched.poll_next(cx, false)));
            let delivery = delivery.expect("it has not ended");
            assert_eq!(delivery.message().payload(), expected);
            drop(delivery.settle(Outcome::Ack));
        }
        assert_pending!(stream.enter(|cx, _| prefetched.poll_next(cx, false)));
        prefetched.end();
        assert!(stream.is_woken());
        assert!(assert_ready!(stream.enter(|cx, _| prefetched.poll_next(cx, false))).is_none());
    }

    #[test]
    fn what_a_lost_connection_left_is_not_handed_out() {
        let (prefetched, settler) = (Prefetched::default(), settler());
        prefetched.extend(&mut vec![waiting(&settler, 1)]);
        settler.end();
        let mut stream = task::spawn(());
        assert_pending!(stream.enter(|cx, _| prefetched.poll_next(cx, false)));
        assert_eq!(prefetched.clear(), 0);
    }
}
