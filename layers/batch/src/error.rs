//! What a member may be told by this layer itself.

/// The runtime that gathers and runs the batches was shut down before this member was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the batches of this layer have ended with their runtime; the message was not answered")]
#[non_exhaustive]
pub struct Closed;

/// Batches are run by tasks, and there was no runtime to start one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("batches need a tokio runtime: call the service inside of one")]
#[non_exhaustive]
pub struct NoRuntime;
