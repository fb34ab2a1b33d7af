//! Publishing is a service too.

use std::{borrow::Cow, error::Error};

use crate::Message;

/// A header of a dead letter: why it was rejected, or why the broker gave up. Text.
pub const DEAD_LETTER_REASON: &str = "dead-letter-reason";
/// A header of a dead letter: how many attempts there were. A number.
pub const DEAD_LETTER_ATTEMPTS: &str = "dead-letter-attempts";
/// A header of a dead letter: how often a handler was given the last delivery. More than once, if it was tried again
/// in place. A number.
pub const DEAD_LETTER_TRIES: &str = "dead-letter-tries";
/// A header of a dead letter: the queue or topic that it was in. Text.
pub const DEAD_LETTER_QUEUE: &str = "dead-letter-queue";
/// A header of a dead letter: when a handler first failed with it, or rejected it. A timestamp, as fine as the broker has
/// them.
pub const DEAD_LETTER_FIRST_FAILURE: &str = "dead-letter-first-failure";
/// The header in which a source notes how many attempts have failed, where it puts a message off by publishing a copy.
/// It belongs to that copy alone: publishers do not take it over from the message that they are given.
pub const ATTEMPT_HEADER: &str = "tower-mq-attempt";

/// What a publisher is asked to do: `Service<Publication, Response = Receipt>`, done when the broker has stored it. Its
/// errors tell whether it is certain that the broker has not: [`NotStored`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Publication {
    /// The queue or topic. `None`: the publisher's own ([`to`](Self::to) sets it).
    pub destination: Option<Cow<'static, str>>,
    /// Payload, key, headers and properties.
    pub message: Message,
    /// Headers that are added to those of the message, or replace them.
    pub headers: Vec<(Cow<'static, str>, crate::Value<'static>)>,
}

impl Publication {
    /// Publishes a message, or a copy of one.
    pub fn new(message: Message) -> Self {
        Self { destination: None, message, headers: Vec::new() }
    }

    /// The queue or topic.
    pub fn to(mut self, destination: impl Into<Cow<'static, str>>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Adds a header, or replaces one of the message's.
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<crate::Value<'static>>,
    ) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// Found among the [sources](Error::source) of a publisher's error, it means that the message is not stored, and will not
/// be. Without it nobody knows: the broker may have stored the message, and only its answer was lost.
///
/// Who publishes again after an error may store a message twice, unless this is in it. A publisher says so where it
/// knows:
///
/// ```
/// use tower_mq_delivery::NotStored;
///
/// #[derive(Debug, thiserror::Error)]
/// enum PublishError {
///     #[error("the queue is full")]
///     Full(#[source] NotStored),
///     #[error("the connection was lost")]
///     Lost,
/// }
///
/// assert!(NotStored::is_in(&PublishError::Full(NotStored)));
/// assert!(!NotStored::is_in(&PublishError::Lost));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the message is not stored")]
pub struct NotStored;

impl NotStored {
    /// Looks for it in `error` and in all its sources.
    pub fn is_in(error: &(dyn Error + 'static)) -> bool {
        std::iter::successors(Some(error), |e| (**e).source()).any(|e| e.is::<Self>())
    }
}

/// The broker has stored a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The id that the broker gave it, where it gives one.
    pub id: Option<String>,
}

impl Receipt {
    /// A receipt without an id.
    pub const fn new() -> Self {
        Self { id: None }
    }

    /// A receipt with the broker's id.
    pub fn with_id(id: impl Into<String>) -> Self {
        Self { id: Some(id.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoxError, SharedError};

    #[derive(Debug, thiserror::Error)]
    #[error("the queue is full")]
    struct Full(#[source] NotStored);

    #[test]
    fn that_a_message_is_not_stored_is_known_through_every_wrapper() {
        assert!(NotStored::is_in(&NotStored));
        assert!(NotStored::is_in(&Full(NotStored)));
        assert!(NotStored::is_in(&SharedError::from(BoxError::from(Full(NotStored)))));
        let explained = anyhow::Error::from(Full(NotStored)).context("while publishing");
        assert!(NotStored::is_in(&*BoxError::from(explained)));
        assert!(!NotStored::is_in(&std::io::Error::other("the connection was lost")));
    }
}
