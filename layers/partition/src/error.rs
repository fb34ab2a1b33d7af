//! What a caller reads when its delivery was not handled.

/// The lane ended before it answered: its runtime was shut down, or its task died.
///
/// The delivery was dropped, so it goes back to its queue. A later call starts the lane anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lane ended before it answered, because its runtime was shut down; the delivery was dropped")]
#[non_exhaustive]
pub struct Closed;

/// Lanes are tasks, and a task needs a runtime to be started on.
///
/// Call the service within a Tokio runtime, or build the layer with
/// [`inline`](crate::PartitionLayer::inline), which starts no tasks. The delivery was dropped, so it goes back to its
/// queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a partition was called outside of a Tokio runtime, so its lanes cannot be started: call it within one, or \
     build the layer with `.inline()`; the delivery was dropped"
)]
#[non_exhaustive]
pub struct NoRuntime;
