//! Why there is no confirmation, where the publisher has not said so.

use std::time::Duration;

use tower_mq_delivery::NotStored;

/// Why a copy is not confirmed, where it is not the publisher who failed. Found in
/// [`Event::NotDeadLettered`](tower_mq_delivery::Event::NotDeadLettered).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotConfirmed {
    /// The publisher was not ready in time. The copy is not stored.
    #[error("the publisher of dead letters was not ready within {limit:?}")]
    NotReady {
        /// How long was waited.
        limit: Duration,
        /// It is certain.
        #[source]
        not_stored: NotStored,
    },
    /// The publisher did not answer in time. The copy may be stored.
    #[error("the publisher of dead letters did not confirm within {limit:?}")]
    TimedOut {
        /// How long was waited.
        limit: Duration,
    },
    /// The message's generation has ended: it comes again, and is no longer ours to ack.
    #[error("the connection that the message came by has ended")]
    Stale,
}
