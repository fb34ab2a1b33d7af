//! The names of spans and fields, all of them.
//!
//! OpenTelemetry's semantic conventions for messaging, version 1.41.0, status *development*:
//! <https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/>. A name changes here or nowhere.

/// The operation of a consumer: its name, its type, and the first word of the span's name.
pub(crate) const PROCESS: &str = "process";
/// What publishing is called on the brokers that we know.
pub(crate) const PUBLISH: &str = "publish";
/// The type of operation that publishing is.
pub(crate) const SEND: &str = "send";

pub(crate) const CONSUMER: &str = "consumer";
pub(crate) const PRODUCER: &str = "producer";

pub(crate) const SYSTEM: &str = "messaging.system";
pub(crate) const OPERATION_NAME: &str = "messaging.operation.name";
pub(crate) const OPERATION_TYPE: &str = "messaging.operation.type";
pub(crate) const DESTINATION: &str = "messaging.destination.name";
pub(crate) const MESSAGE_ID: &str = "messaging.message.id";
pub(crate) const CONVERSATION_ID: &str = "messaging.message.conversation_id";
pub(crate) const BODY_SIZE: &str = "messaging.message.body.size";
/// Of batches only, also of a batch of one.
pub(crate) const MESSAGE_COUNT: &str = "messaging.batch.message_count";
pub(crate) const ERROR_TYPE: &str = "error.type";
/// An error that nobody has given a type.
pub(crate) const OTHER: &str = "_OTHER";

// What the bridge from `tracing` to OpenTelemetry takes for more than a field.
pub(crate) const NAME: &str = "otel.name";
pub(crate) const KIND: &str = "otel.kind";
pub(crate) const STATUS: &str = "otel.status_code";
pub(crate) const STATUS_DESCRIPTION: &str = "otel.status_description";
pub(crate) const FAILED: &str = "ERROR";

// Our own.
/// What became of the message: the name of an outcome, [`DROPPED`] or [`MIXED`].
pub(crate) const OUTCOME: &str = "tower_mq.outcome";
pub(crate) const ATTEMPT: &str = "tower_mq.attempt";
/// The ids of the context that came with a message, for those who follow a trace through plain logs.
pub(crate) const TRACE_ID: &str = "trace_id";
pub(crate) const PARENT_ID: &str = "parent_id";
/// The id that the broker gave a publication.
pub(crate) const RECEIPT: &str = "tower_mq.receipt";
/// Nobody waited for the end.
pub(crate) const DROPPED: &str = "dropped";
/// The members of a batch ended differently.
pub(crate) const MIXED: &str = "mixed";

// W3C Trace Context, level 2: <https://www.w3.org/TR/trace-context-2/>.
pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const TRACESTATE: &str = "tracestate";
