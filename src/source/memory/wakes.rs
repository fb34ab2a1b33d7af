//! Wake-ups that are put off until the lock is released.

use std::task::Waker;

/// Whom to wake once the lock is released. Does not allocate for the first.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Wakes {
    first: Option<Waker>,
    // In a box of its own: there are seldom any, and then this is nothing to drop.
    others: Option<Box<Others>>,
}

#[derive(Debug, Default)]
struct Others(Vec<Waker>);

impl Wakes {
    pub(super) fn add(&mut self, waker: Option<Waker>) {
        match (&self.first, waker) {
            (None, waker) => self.first = waker,
            (Some(_), waker) => self.others.get_or_insert_default().0.extend(waker),
        }
    }

    #[inline(always)]
    pub(super) fn wake(self) {
        let Some(waker) = self.first else { return };
        waker.wake();
        if let Some(others) = self.others {
            others.0.into_iter().for_each(Waker::wake);
        }
    }
}
