//! What the check of a source needs of its author.

use std::time::Duration;

use crate::{BoxError, Message, source::Source};

/// A broker, a queue on it, and a source that consumes it: for [`contract::source`](super::source).
///
/// What has a default is optional: the cases that need it are left out without it. Errors end the check.
pub trait Rig {
    /// The source to be checked.
    type Source: Source;

    /// From now on, an empty queue that nobody consumes: a new one, most simply. Called before each case.
    fn empty(&mut self) -> impl Future<Output = Result<(), BoxError>>;

    /// Puts a message into the queue, behind all others: payload and key. Stored when it returns.
    fn publish(&mut self, message: Message) -> impl Future<Output = Result<(), BoxError>>;

    /// Consumes the queue, with this window. Some cases do it again, after the last source has ended.
    fn consume(&mut self, window: usize) -> impl Future<Output = Result<Self::Source, BoxError>>;

    /// Cuts the connection of the source, so that it has to make a new one. Called when the source has had
    /// [time](Self::quiet) to tell the broker all that was decided. `false`: it cannot be done.
    fn cut(&mut self) -> impl Future<Output = Result<bool, BoxError>> {
        async { Ok(false) }
    }

    /// Sees to it that the source cannot go on: deletes the queue, ends the broker. `false`: it cannot be done.
    fn ruin(&mut self) -> impl Future<Output = Result<bool, BoxError>> {
        async { Ok(false) }
    }

    /// How many messages are in the queue, asked when nobody consumes it. `None`: that is not known.
    fn ready(&mut self) -> impl Future<Output = Result<Option<usize>, BoxError>> {
        async { Ok(None) }
    }

    /// How many messages of the queue have become dead letters. `None`: that is not known.
    fn dead_letters(&mut self) -> impl Future<Output = Result<Option<usize>, BoxError>> {
        async { Ok(None) }
    }

    /// The broker can tell an empty key from none. Default: it can.
    fn has_empty_keys(&self) -> bool {
        true
    }

    /// How long to wait to be sure that nothing comes, and that the broker was told all that was decided. Default:
    /// 300 ms.
    fn quiet(&self) -> Duration {
        Duration::from_millis(300)
    }

    /// How long to wait for what must come. Default: 30 s.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}
