//! Futures in their boxes: polled, dropped with care, and the boxes used again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{Finished, Tag};
use crate::{Panic, Panicked};

pub(super) type Slot<F> = Pin<Box<Option<F>>>;

/// Polls the future in the slot, and drops it when it is done. A future may panic when it is dropped, too.
#[inline(always)]
pub(super) fn poll_slot<F: Future, T: Tag>(
    slot: &mut Slot<F>,
    tag: &T,
    cx: &mut Context<'_>,
) -> Poll<Finished<F::Output>> {
    let _entered = tag.enter();
    if tag.is_cancelled() {
        return Poll::Ready(cancel(slot));
    }
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let Some(future) = slot.as_mut().as_pin_mut() else { return Poll::Pending };
        let output = ready!(future.poll(cx));
        slot.set(None);
        Poll::Ready(output)
    }));
    match polled {
        Ok(Poll::Ready(output)) => Poll::Ready(Finished::Answered(output)),
        Ok(Poll::Pending) if tag.watch(cx.waker()) => Poll::Pending,
        Ok(_) => Poll::Ready(cancel(slot)),
        Err(panic) => {
            log(empty(slot));
            Poll::Ready(Finished::Panicked(panic))
        }
    }
}

/// Drops a future that nobody wants.
#[cold]
pub(super) fn cancel<F, O>(slot: &mut Slot<F>) -> Finished<O> {
    empty(slot).map_or_else(Finished::Panicked, |()| Finished::Cancelled)
}

#[cold]
pub(super) fn empty<F>(slot: &mut Slot<F>) -> Result<(), Panic> {
    catch_unwind(AssertUnwindSafe(|| slot.set(None)))
}

/// Nobody is left to be told of this panic.
#[cold]
pub(super) fn log(emptied: Result<(), Panic>) {
    if let Err(panic) = emptied {
        tracing::error!(error = %Panicked::new(&panic), "a future panicked when it was dropped");
    }
}

/// A future in its box, so that one that was polled in the head can move here, and the box can be used again.
pub(super) struct Running<F, T> {
    pub(super) slot: Option<Slot<F>>,
    pub(super) tag: Option<T>,
    pub(super) holds: bool,
}

impl<F, T> Unpin for Running<F, T> {}

impl<F, T> Drop for Running<F, T> {
    fn drop(&mut self) {
        if let Some(slot) = &mut self.slot {
            log(empty(slot));
        }
    }
}

impl<F: Future, T: Tag> Future for Running<F, T> {
    type Output = (Slot<F>, T, bool, Finished<F::Output>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (Some(slot), Some(tag)) = (&mut this.slot, &this.tag) else { return Poll::Pending };
        let Poll::Ready(finished) = poll_slot(slot, tag, cx) else { return Poll::Pending };
        match (this.slot.take(), this.tag.take()) {
            (Some(slot), Some(tag)) => Poll::Ready((slot, tag, this.holds, finished)),
            _ => Poll::Pending,
        }
    }
}
