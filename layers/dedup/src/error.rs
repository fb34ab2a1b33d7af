//! What a store may have to say.

/// An id was taken over by somebody else while its handler ran: its message may have been handled twice.
///
/// A store says so from [`Store::finish`](crate::Store::finish); the message is acked all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease of a message id ran out while its message was handled, and somebody else took it: the message may have \
     been handled twice"
)]
#[non_exhaustive]
pub struct LeaseLost;

impl LeaseLost {
    /// For stores.
    pub const fn new() -> Self {
        Self
    }
}
