//! A delivery that runs inside its own response future.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_mq_delivery::{BoxError, CarryOne};
use tower_service::Service;

use crate::inline::{Hand, Inline, Slot};

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
    pub(crate) fn new(inline: &Arc<Inline<S, R>>, key: u64, request: R, place: u32) -> Self {
        inline.enter(key, request, place);
        Self { inline: inline.clone(), key, place, stage: Stage::Waits }
    }

    #[inline]
    fn leave(&mut self) {
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
            self.stage = Stage::Works(ready!(self.inline.poll_worker(self.place, cx)));
        }
        let (inline, stage) = (&self.inline, &mut self.stage);
        let polled = catch_unwind(AssertUnwindSafe(|| match stage {
            Stage::Works(worker) => worker.poll(inline, cx),
            Stage::Passed(slot) => match slot.as_mut().as_pin_mut() {
                Some(future) => future.poll(cx).map_err(Into::into),
                None => Poll::Pending,
            },
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
            self.leave();
        }
    }
}
