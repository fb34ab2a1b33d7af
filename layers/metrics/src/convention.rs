//! The names of OpenTelemetry, all of them.
//!
//! Semantic conventions for messaging, version 1.41.0, status *development*:
//! <https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/>. A name changes here or nowhere.
//!
//! Not reported: `messaging.client.operation.duration` and `messaging.client.sent.messages`. What they time and count
//! happens in sources and publishers, which settle and send many messages at once.

use metrics::{Unit, describe_counter, describe_histogram};

/// Counter, `{message}`: deliveries taken, each once, however often it is tried.
pub const CONSUMED_MESSAGES: &str = "messaging.client.consumed.messages";
/// Histogram, `s`: the duration of one try of a handler.
pub const PROCESS_DURATION: &str = "messaging.process.duration";

/// The upper bounds that the conventions advise for durations, in seconds.
pub const DURATION_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// The kind of broker.
pub const SYSTEM: &str = "messaging.system";
/// The queue or topic.
pub const DESTINATION_NAME: &str = "messaging.destination.name";
/// What was done, in the broker's words.
pub const OPERATION_NAME: &str = "messaging.operation.name";
/// What went wrong. Not there if nothing did.
pub const ERROR_TYPE: &str = "error.type";

/// The operation of [`CONSUMED_MESSAGES`].
pub const RECEIVE: &str = "receive";
/// The operation of [`PROCESS_DURATION`].
pub const PROCESS: &str = "process";
/// What has no name of its own.
pub const OTHER: &str = "_OTHER";

/// Tells the recorder the units.
pub(crate) fn describe() {
    describe_counter!(CONSUMED_MESSAGES, Unit::Count, "Messages that were delivered to the application.");
    describe_histogram!(
        PROCESS_DURATION,
        Unit::Seconds,
        "Duration of the handling of a message or batch, each try."
    );
}
