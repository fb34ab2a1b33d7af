//! The stream that a script makes.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};
use tower_mq_delivery::{Acker, BoxError, Delivery, Generation, Message};

use super::{Out, Script, State, Step};
use crate::{
    probe::{Duty, Place, Probe, Stage},
    reply::Reply,
};

/// A stream that does what its [`Script`] says. Made by [`source()`](super::source()).
#[must_use = "streams do nothing unless polled"]
pub struct Scripted {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) waiting: Option<Pin<Box<Sleep>>>,
    /// How the stream ended, until that was asked for.
    pub(super) end: Option<Result<(), BoxError>>,
}

impl Scripted {
    /// The generation that lives now.
    pub fn generation(&self) -> Arc<Generation> {
        self.state.lock().generation.clone()
    }

    /// Takes nothing more, and waits until all that was handed out is settled; then says how the stream ended. An
    /// error is told once, and at once.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(Err(error)) = self.end.replace(Ok(())) {
            return Poll::Ready(Err(error));
        }
        let mut state = self.state.lock();
        if state.unsettled() == 0 {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn deliver(&self, message: Message, probe: Probe, number: u64) -> Delivery {
        let generation = message.generation().clone();
        let place = Arc::new(OutPlace { state: Arc::downgrade(&self.state), number });
        let duty = Duty { probe, generation, place: Some(place) };
        Delivery::new(message, Acker::new(Arc::new(duty), 0))
    }
}

/// One of those that are out.
struct OutPlace {
    state: Weak<Mutex<State>>,
    number: u64,
}

impl Place for OutPlace {
    fn reply(&self) -> Option<Reply> {
        self.state.upgrade()?.lock().reply.clone()
    }

    fn reached(&self, stage: Stage) {
        let Some(state) = self.state.upgrade() else { return };
        let (waker, _done);
        {
            let mut state = state.lock();
            _done = match stage {
                Stage::Decided => {
                    if let Some(out) = state.out.get_mut(&self.number) {
                        out.decided = true;
                    }
                    None
                }
                Stage::Told => state.out.remove(&self.number),
            };
            waker = state.waker.take();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Stream for Scripted {
    type Item = Delivery;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = self.get_mut();
        loop {
            if this.end.is_some() {
                return Poll::Ready(None);
            }
            let mut state = this.state.lock();
            state.waker = Some(cx.waker().clone());
            if state.stalled {
                return Poll::Pending;
            }
            if let Some(waiting) = &mut this.waiting {
                drop(state);
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.waiting = None;
                continue;
            }
            let full = state.unsettled() >= state.window;
            match state.steps.front() {
                None => return Poll::Pending,
                Some(step) if step.is_delivery() && full => return Poll::Pending,
                Some(_) => {}
            }
            let (message, probe) = match state.steps.pop_front() {
                Some(Step::Deliver(build, probe)) => (build(state.generation.clone()), probe),
                Some(Step::Again(of, again, probe)) => {
                    let mut message = of.message().expect("a message is handed out before it comes again");
                    let attempt = again.attempt_after(message.attempt());
                    (message.deliver(&state.generation, attempt, again.redelivered), probe)
                }
                Some(Step::Wait(time)) => {
                    this.waiting = Some(Box::pin(sleep(time)));
                    continue;
                }
                Some(Step::End(end)) => {
                    this.end = Some(end);
                    continue;
                }
                None => continue,
            };
            probe.taken(message.clone());
            state.numbers += 1;
            let number = state.numbers;
            state.out.insert(number, Out { probe: probe.clone(), decided: false });
            drop(state);
            return Poll::Ready(Some(this.deliver(message, probe, number)));
        }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("script", &Script(self.state.clone())).finish_non_exhaustive()
    }
}
