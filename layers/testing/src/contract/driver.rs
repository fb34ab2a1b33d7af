//! What a driver does for a stack, as far as layers can tell.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project::pin_project;
use tower_mq_delivery::{Turn, Turns};

/// Hands out turns, as a driver or a lane does.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) turns: Arc<Turns>,
    handed_out: Cell<u64>,
}

impl Driver {
    pub(super) fn new() -> Self {
        Self { turns: Turns::new(), handed_out: Cell::new(0) }
    }

    /// The next turn, and its number.
    pub(super) fn turn(&self) -> (Turn, u64) {
        self.handed_out.set(self.handed_out.get() + 1);
        (self.turns.turn(self.handed_out.get()), self.handed_out.get())
    }
}

/// A response under way, and the one who waits for it: who finds nothing more to take, once the turn is passed.
#[pin_project]
pub(super) struct Driven<F> {
    #[pin]
    future: Option<F>,
    turns: Arc<Turns>,
    turn: u64,
    /// Of the message.
    pub(super) number: u64,
}

/// It panicked.
#[derive(Debug)]
pub(super) struct Panicked;

impl<F> Driven<F> {
    /// `None`: it panicked in `call`.
    pub(super) fn new(future: Option<F>, driver: &Driver, turn: u64, number: u64) -> Self {
        Self { future, turns: driver.turns.clone(), turn, number }
    }

    /// Whether its turn was passed.
    pub(super) fn is_passed(&self) -> bool {
        self.turns.is_passed(self.turn)
    }
}

impl<F: Future> Future for Driven<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else { return Poll::Ready(Err(Panicked)) };
        let polled = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        };
        if polled.is_pending() && this.turns.is_passed(*this.turn) {
            this.turns.idle();
        }
        polled
    }
}
