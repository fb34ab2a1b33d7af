//! Where the members of one batch wait for their answers: one allocation for all of them.

use std::{
    mem,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use tower_mq_delivery::{BoxError, Outcome};

type Answer = Result<Outcome, BoxError>;

/// A seat for each member that ever was in the batch, by number.
#[derive(Default)]
pub(crate) struct Seats(Mutex<Row>);

#[derive(Default)]
struct Row {
    seats: Vec<Seat>,
    /// How many of them are waited on.
    waiting: usize,
}

enum Seat {
    /// The member waits; its task may have looked.
    Waiting(Option<Waker>),
    Answered(Answer),
    /// Nobody waits here any more.
    Left,
}

impl Seats {
    /// One more member. Gives back the number of its seat.
    pub(crate) fn sit(&self) -> usize {
        let mut row = self.0.lock();
        row.seats.push(Seat::Waiting(None));
        row.waiting += 1;
        row.seats.len() - 1
    }

    /// The answer, once.
    pub(crate) fn poll(&self, seat: usize, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut row = self.0.lock();
        let seat = &mut row.seats[seat];
        let replaced = match seat {
            Seat::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => None,
            Seat::Waiting(waker) => waker.replace(cx.waker().clone()),
            Seat::Answered(_) => match mem::replace(seat, Seat::Left) {
                Seat::Answered(answer) => return Poll::Ready(answer),
                _ => None,
            },
            Seat::Left => None,
        };
        // Without the lock: to drop a waker may run anything.
        drop(row);
        drop(replaced);
        Poll::Pending
    }

    /// The member goes away. `None`: it was answered, or gone; else whether it was the last one that waited.
    pub(crate) fn leave(&self, seat: usize) -> Option<bool> {
        let mut row = self.0.lock();
        let left = mem::replace(&mut row.seats[seat], Seat::Left);
        let last = matches!(left, Seat::Waiting(_)).then(|| {
            row.waiting -= 1;
            row.waiting == 0
        });
        drop(row);
        drop(left);
        last
    }

    /// Whether nobody waits any more.
    pub(crate) fn are_left(&self) -> bool {
        self.0.lock().waiting == 0
    }

    /// Answers those in the seats of these numbers. Who has gone away does not get an answer.
    pub(crate) fn answer(&self, answers: impl Iterator<Item = (usize, Answer)>) {
        let (mut wakers, mut unwanted) = (Vec::new(), Vec::new());
        let mut row = self.0.lock();
        for (seat, answer) in answers {
            match mem::replace(&mut row.seats[seat], Seat::Left) {
                Seat::Waiting(waker) => {
                    row.seats[seat] = Seat::Answered(answer);
                    row.waiting -= 1;
                    wakers.extend(waker);
                }
                Seat::Answered(_) | Seat::Left => unwanted.push(answer),
            }
        }
        drop(row);
        wakers.into_iter().for_each(Waker::wake);
        // What nobody wants may panic when it is dropped: the others have heard by then.
        drop(unwanted);
    }
}
