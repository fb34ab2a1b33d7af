//! Runs each delivery in a span of its own, and carries the trace on: into the handler, and along with what it
//! publishes.
//!
//! [`TraceLayer`] makes a [`tracing`] span for each request, enters it while the inner service works, and records what
//! became of it. [`TraceLayer::publisher`] does the same for publications. Names and fields are those of
//! OpenTelemetry's [semantic conventions for messaging](https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/),
//! version 1.41.0.
//!
//! | field | value |
//! |---|---|
//! | `otel.name` | `process` or `publish`, and the queue or topic |
//! | `otel.kind` | `consumer` or `producer` |
//! | `messaging.system`, `messaging.destination.name` | where the message comes from, or goes to |
//! | `messaging.operation.name`, `messaging.operation.type` | `process`, `process`; of publications `publish`, `send` |
//! | `messaging.message.id`, `messaging.message.conversation_id`, `messaging.message.body.size` | of a single message |
//! | `messaging.batch.message_count` | of a batch, also of a batch of one |
//! | `trace_id`, `parent_id` | the context that came with a single message, if one came |
//! | `tower_mq.attempt` | the attempt, where somebody counts |
//! | `tower_mq.outcome` | `ack`, `release`, `retry` or `reject`; `mixed`, when the members of a batch ended differently; `dropped`, when nobody waited for the end |
//! | `tower_mq.receipt` | the id that the broker gave a publication, if it gave one |
//! | `error.type`, `otel.status_code` | only of what failed: see below |
//! | `otel.status_description` | the reason of a reject, the text of an error |
//!
//! `error.type` is one of few: `retry` and `reject` for those outcomes, `panic`, `settlement` for a decision that did not
//! reach the broker, the name of the error's type where the service has one, `_OTHER` for the rest.
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_mq_delivery::{BoxError, Message, Outcome};
//! use tower_mq_trace::TraceLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let stack = ServiceBuilder::new().layer(TraceLayer::new()).service_fn(async |message: Message| {
//!     tracing::info!("is logged with the fields of the message's span");
//!     Ok::<_, BoxError>(Outcome::Ack)
//! });
//! assert_eq!(stack.oneshot(Message::new("two teas")).await?, Outcome::Ack);
//! # Ok(())
//! # }
//! ```
//!
//! # Trace context
//! Comes and goes in the headers `traceparent` and `tracestate` of the
//! [W3C](https://www.w3.org/TR/trace-context-2/), as [`TraceContext`]. One that is malformed is logged (debug) and left
//! alone: the message is handled in a trace of its own.
//!
//! `tracing` alone has no traces, only spans. So what becomes of the context depends on the feature `opentelemetry`
//! together with the layer of [`tracing-opentelemetry`](https://docs.rs/tracing-opentelemetry) in the subscriber:
//!
//! | | without | with both |
//! |---|---|---|
//! | spans, fields | as above | as above |
//! | the context that comes in | the fields `trace_id` and `parent_id`, for those who search their logs | besides, a link to the sender's span; its child, by [`continue_trace`](TraceLayer::continue_trace) |
//! | a batch | | links to the senders of all its members |
//! | the context that goes out | what the publication has; [`TraceContext::inject`] sets it | that of the publication's span: see [`PublisherLayer`] |
//!
//! # Order
//! Outside Partition, which carries the span into the lane. See [`TraceLayer`] for other places.
//!
//! # Cancel safety, Panics, Cost
//! See [`Trace`].

mod context;
mod convention;
mod ending;
mod error;
pub mod future;
mod layer;
mod otel;
mod publisher;
mod service;
mod span;
mod state;

pub use context::TraceContext;
pub use error::Malformed;
pub use layer::TraceLayer;
pub use publisher::{Publisher, PublisherLayer};
pub use service::Trace;
