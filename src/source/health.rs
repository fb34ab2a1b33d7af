//! How a source is doing.

use std::sync::Arc;

use tokio::time::Instant;
use tower_mq_delivery::SharedError;

/// How a source is doing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Connected, or on the way.
    pub state: State,
    /// What its user should change: settings that cannot work, outcomes the broker cannot express. Each says so once.
    pub warnings: Vec<Arc<str>>,
}

/// Whether a source is connected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// For the first time.
    Connecting,
    /// It takes deliveries, unless it is paused.
    Connected {
        /// Since when.
        since: Instant,
        /// Which connection of this source it is, from 1.
        generation: u64,
    },
    /// It lost its broker and tries to come back.
    Reconnecting {
        /// When it lost its broker.
        since: Instant,
        /// Which attempt failed last, from 1; 0: none has, yet.
        attempt: u32,
        /// Why the last attempt failed, or the connection was lost.
        error: SharedError,
    },
    /// It has ended.
    Closed {
        /// Why, if it was not asked to.
        error: Option<SharedError>,
    },
}
