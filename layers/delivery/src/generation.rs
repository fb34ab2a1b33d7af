//! The life of a connection, or of an assignment.

use std::sync::Arc;

use crate::{Origin, signal::Signal};

/// One life of a broker connection, or of a queue's assignment. Settlements never cross it.
///
/// Every message holds the generation it was taken in. When the generation ends, the broker hands the message to
/// somebody else, so a handler that has not started must not start.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    ended: Signal,
    origin: Arc<Origin>,
}

impl Generation {
    /// The first generation of a source.
    pub fn first(origin: Arc<Origin>) -> Arc<Self> {
        Self::numbered(origin, 1)
    }

    /// A generation of this number.
    pub fn numbered(origin: Arc<Origin>, number: u64) -> Arc<Self> {
        Arc::new(Self { number, ended: Signal::default(), origin })
    }

    /// Ends this generation and begins the next one.
    pub fn next(&self) -> Arc<Self> {
        self.end();
        Self::numbered(self.origin.clone(), self.number + 1)
    }

    /// Counts from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The source.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The connection or assignment is gone.
    pub fn end(&self) {
        self.ended.raise(1);
    }

    /// Whether it is gone.
    pub fn is_over(&self) -> bool {
        self.ended.level() > 0
    }

    /// Waits for the end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn over(&self) {
        self.ended.reached(1).await;
    }
}
