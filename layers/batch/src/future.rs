//! The response of [`Batcher`](crate::Batcher).

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_mq_delivery::{BoxError, Outcome};

use crate::{owners::Owners, seats::Seats};

/// The answer to one member of a batch. After it was ready it is never ready again.
///
/// # Cancel safety
/// Dropped before its batch starts, it takes its message out of the batch. After that, its result is dropped; the
/// batch goes on for the others, and is dropped itself when nobody waits for it any more.
#[must_use = "a message whose response is dropped is taken out of its batch"]
pub struct ResponseFuture(Kind);

enum Kind {
    Member(Member),
    Answered(Result<Outcome, BoxError>),
    Over,
}

/// A seat in a batch.
pub(crate) struct Member {
    pub(crate) owners: Arc<Owners>,
    pub(crate) owner: usize,
    pub(crate) number: u64,
    pub(crate) seats: Arc<Seats>,
    pub(crate) seat: usize,
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(last) = self.seats.leave(self.seat) {
            self.owners.leave(self.owner, self.number, self.seat, last);
        }
    }
}

impl ResponseFuture {
    pub(crate) fn member(member: Member) -> Self {
        Self(Kind::Member(member))
    }

    pub(crate) fn answered(answer: Result<Outcome, BoxError>) -> Self {
        Self(Kind::Answered(answer))
    }
}

impl Future for ResponseFuture {
    type Output = Result<Outcome, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Kind::Member(member) = &self.0 {
            let answer = ready!(member.seats.poll(member.seat, cx));
            self.0 = Kind::Over;
            return Poll::Ready(answer);
        }
        match std::mem::replace(&mut self.0, Kind::Over) {
            Kind::Answered(answer) => Poll::Ready(answer),
            _ => Poll::Pending,
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
