//! Who remembers ids.

use tower_mq_delivery::BoxError;

use crate::Id;

/// Remembers which ids are being handled and which were.
///
/// There is one [in memory](crate::MemoryStore) and one in Redis (`RedisStore`, feature `redis`); implement it for a
/// database of your own. Clones are the same store. `contract::check` (feature `testing`) is the test that every store
/// must pass.
///
/// An id is *new*, *running* or *done*. [`begin`](Self::begin) asks, and makes a new id running. Whoever began it ends
/// it in one of two ways: [`finish`](Self::finish) makes it done, [`forget`](Self::forget) makes it new again. A store
/// that outlives the process must do the latter by itself when the process is gone.
pub trait Store: Clone {
    /// What proves that an id that is running is ours.
    type Lease;

    /// The future of [`begin`](Self::begin).
    type Begin: Future<Output = Result<Begun<Self::Lease>, BoxError>>;

    /// The future of [`finish`](Self::finish).
    type Finish: Future<Output = Result<(), BoxError>>;

    /// The future of [`wait`](Self::wait).
    type Wait: Future<Output = ()>;

    /// Whatever runs, runs in this process: its end is near when the stack drains, so it is waited for. In another
    /// process nobody drains, and the message is released instead. Default: `false`.
    const LOCAL: bool = false;

    /// [`begin`](Self::begin) for stores that need not wait for the answer. Default: `None`, ask with `begin`.
    ///
    /// A store that answers here lets the inner service be called at once, with nothing between.
    fn begin_now(&self, _id: Id) -> Option<Begun<Self::Lease>> {
        None
    }

    /// Asks for an id, and makes it running if it is new: of all who ask at the same time, one is told that it is new.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the id is not left running for longer than the store takes to find
    /// out.
    fn begin(&self, id: Id) -> Self::Begin;

    /// The message was handled: the id is done, for as long as the store remembers it.
    ///
    /// An error says that it may not be remembered. The message is acked all the same.
    ///
    /// # Cancel safety
    /// The id is done also if the future is dropped, as far as the store can see to it.
    fn finish(&self, id: Id, lease: Self::Lease) -> Self::Finish;

    /// [`finish`](Self::finish) for stores that need not wait, and cannot fail. Default: gives the lease back, call
    /// `finish`.
    ///
    /// # Errors
    /// The lease, if `finish` is to be called.
    fn finish_now(&self, _id: Id, lease: Self::Lease) -> Result<(), Self::Lease> {
        Err(lease)
    }

    /// The message was not handled, or not to its end: the id is new. Called when a future is dropped, so it cannot
    /// wait; a remote store does it in the background.
    fn forget(&self, id: Id, lease: Self::Lease);

    /// Waits until it is worth to ask again for an id that was running, or for the store itself after an error. It may
    /// be too early. `round` counts from 0, and begins anew with each message.
    fn wait(&self, id: Id, round: u32) -> Self::Wait;
}

/// What a store knows of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun<L> {
    /// Nothing: from now on it is running, and this is the proof that it is ours.
    New(L),
    /// Somebody handles it.
    Running,
    /// It was handled.
    Done,
}
