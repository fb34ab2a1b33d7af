//! A delivery that runs inside its own response future.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_mq_delivery::{BoxError, CarryOne};
use tower_service::Service;

use crate::inline::{Hand, Inline, Slot, poll_slot};

/// A delivery in its queue, running or not. Dropped, it is cancelled at once.
pub(crate) struct Ticket<S, R>
where
    S: Service<R>,
{
    inline: Arc<Inline<S, R>>,
    key: u64,
    place: u32,
    stage: Stage<S, R, S::Future>,
}

/// How far the delivery has come.
enum Stage<S, R, F> {
    Waits,
    Works(Hand<S, R, F>),
    /// Its worker has gone on to others.
    Passed(Slot<F>),
    Done,
}

impl<S, R> Ticket<S, R>
where
    S: Service<R>,
{
    /// Puts the delivery at the end of its key's queue.
    #[inline]
    pub(crate) fn new(inline: &Arc<Inline<S, R>>, key: u64, request: R, place: u32) -> Self
    where
        R: CarryOne,
    {
        inline.enter(key, request, place);
        Self { inline: inline.clone(), key, place, stage: Stage::Waits }
    }

    #[inline]
    fn leave(&mut self) {
        self.inline.spans().forget(self.place);
        match mem::replace(&mut self.stage, Stage::Done) {
            Stage::Waits => self.inline.stand_up(self.place, self.key),
            Stage::Works(worker) => self.inline.leave(worker, self.key, self.place),
            Stage::Passed(slot) => self.inline.leave_passed(slot, self.key, self.place),
            Stage::Done => {}
        }
    }
}

impl<S, R> Ticket<S, R>
where
    S: Service<R> + Clone,
    S::Error: Into<BoxError>,
    R: CarryOne,
{
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Response, BoxError>> {
        if let Stage::Waits = self.stage {
            self.stage = Stage::Works(ready!(self.inline.poll_worker(self.key, self.place, cx)));
        }
        let (inline, stage) = (&self.inline, &mut self.stage);
        let _entered = inline.spans().enter(self.place);
        let polled = catch_unwind(AssertUnwindSafe(|| match stage {
            Stage::Works(worker) => worker.poll(inline, cx),
            Stage::Passed(slot) => poll_slot(slot, cx),
            Stage::Waits => Poll::Pending,
            Stage::Done => panic!("the response of a partition was polled after it was ready"),
        }));
        match polled {
            Ok(Poll::Ready(answer)) => {
                self.leave();
                Poll::Ready(answer)
            }
            Ok(Poll::Pending) => {
                self.pass(cx);
                Poll::Pending
            }
            Err(panic) => {
                self.leave();
                resume_unwind(panic)
            }
        }
    }

    /// If its turn was passed, its worker goes on to others.
    fn pass(&mut self, cx: &mut Context<'_>) {
        self.stage = match mem::replace(&mut self.stage, Stage::Done) {
            Stage::Works(worker) if worker.is_passed(cx) => Stage::Passed(self.inline.pass(worker, self.key)),
            other => other,
        };
    }
}

impl<S, R> Drop for Ticket<S, R>
where
    S: Service<R>,
{
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Done) {
            let _entered = self.inline.spans().enter(self.place);
            self.leave();
        }
    }
}

#[cfg(all(test, tower_mq_loom))]
mod models {
    use std::{
        future::{Ready, poll_fn, ready},
        task::Waker,
    };

    use loom::{future::block_on, thread};
    use tower_mq_delivery::Message;

    use super::*;
    use crate::{capacity::Waiter, service::Template};

    #[derive(Clone)]
    struct Handler;

    impl Service<Message> for Handler {
        type Response = ();
        type Error = BoxError;
        type Future = Ready<Result<(), BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Message) -> Self::Future {
            ready(Ok(()))
        }
    }

    type Lanes = Arc<Inline<Handler, Message>>;

    fn place(inline: &Lanes) -> u32 {
        let mut cx = Context::from_waker(Waker::noop());
        match inline.capacity().poll_take(&mut Waiter::default(), &mut cx) {
            Poll::Ready(Ok(place)) => place,
            _ => panic!("a place has leaked"),
        }
    }

    fn enter(inline: &Lanes, key: u64) -> Ticket<Handler, Message> {
        Ticket::new(inline, key, Message::new(""), place(inline))
    }

    fn answered(mut ticket: Ticket<Handler, Message>) {
        let answer = block_on(poll_fn(|cx| ticket.poll(cx)));
        assert!(answer.is_ok());
    }

    /// One worker, and three deliveries that want it: one is answered, one goes away, one is awaited. `block_on` hangs,
    /// and loom says so, if a wake-up or the worker is lost.
    fn model(by_lane: bool, keys: [u64; 3]) {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(2);
        bounded.check(move || {
            let inline: Lanes = Arc::new(Inline::new(Template::new(Handler), 1, 3, by_lane));
            let [first, second, third] = keys.map(|key| enter(&inline, key));
            let answers = thread::spawn(move || answered(first));
            let leaves = thread::spawn(move || {
                let mut ticket = second;
                _ = ticket.poll(&mut Context::from_waker(Waker::noop()));
            });
            answered(third);
            answers.join().expect("answers");
            leaves.join().expect("leaves");
            // Every place is free, and so is the worker.
            let places = [(); 3].map(|()| place(&inline));
            assert!(
                inline
                    .capacity()
                    .poll_take(&mut Waiter::default(), &mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            places.into_iter().for_each(|place| inline.capacity().give_back(place));
            answered(enter(&inline, keys[0]));
        });
    }

    #[test]
    fn whoever_waits_in_a_lane_gets_its_worker() {
        model(true, [0, 0, 0]);
    }

    #[test]
    fn whoever_waits_behind_a_key_gets_a_worker() {
        model(false, [1, 1, 1]);
    }

    #[test]
    fn whoever_waits_for_a_worker_gets_one() {
        model(false, [1, 2, 3]);
    }
}
