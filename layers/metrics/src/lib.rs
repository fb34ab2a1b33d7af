//! Measures deliveries and handlers, with the names that OpenTelemetry has for messaging.
//!
//! It reports through the [`metrics`](https://docs.rs/metrics) facade, so any recorder takes it in, that of Prometheus
//! for example. [`MetricsLayer::delivery`] stands outermost and counts each delivery once; [`MetricsLayer::process`]
//! stands next to the handler and times each try. All names are in [`convention`] and [`own`].
//!
//! ```
//! use metrics_util::debugging::DebuggingRecorder;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_mq_delivery::{BoxError, Delivery, Message, Outcome, Settled};
//! use tower_mq_metrics::MetricsLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let recorder = DebuggingRecorder::new();
//! let snapshots = recorder.snapshotter();
//! recorder.install().expect("the first one");
//!
//! // With the other layers between them: Partition, Settle, Retry, and tower's own.
//! let stack = ServiceBuilder::new()
//!     .layer(MetricsLayer::delivery())
//!     .layer(MetricsLayer::process())
//!     .service_fn(async |delivery: Delivery| {
//!         let settlement = delivery.settle(Outcome::Ack).await?;
//!         Ok::<_, BoxError>(Settled::new(Outcome::Ack, settlement))
//!     });
//!
//! stack.oneshot(Delivery::detached(Message::new("two teas"))).await?;
//! let names: Vec<_> = snapshots.snapshot().into_vec().into_iter().map(|(key, ..)| key.key().name().to_owned()).collect();
//! assert!(names.iter().any(|name| name == "messaging.client.consumed.messages"));
//! assert!(names.iter().any(|name| name == "messaging.process.duration"));
//! # Ok(())
//! # }
//! ```
//!
//! # What is measured
//!
//! | metric | kind | labels beside the source's | says |
//! |---|---|---|---|
//! | `messaging.client.consumed.messages` | counter | operation | deliveries taken, each once |
//! | `messaging.process.duration` | histogram, s | operation, `error.type` | how long each try took |
//! | `tower_mq.delivery.duration` | histogram, s | `tower_mq.outcome` | from taken to settled: queue, tries and waits |
//! | `tower_mq.window.size` | gauge | | the most deliveries that are taken and not settled |
//! | `tower_mq.window.in_use` | gauge | | deliveries taken and not settled |
//! | `tower_mq.window.largest_key_share` | gauge, 0 to 1 | | the largest key's share of those |
//! | `tower_mq.lane.depth` | gauge | `tower_mq.lane` | deliveries that wait in a lane |
//! | `tower_mq.batch.size` | histogram | `tower_mq.closed_by` | members of a batch |
//! | `tower_mq.retries` | counter | | tries in place after the first |
//! | `tower_mq.parked` | gauge | | messages that sleep until their next try |
//! | `tower_mq.duplicates`, `tower_mq.unidentified`, `tower_mq.dedup.failures` | counter | | what Dedup left out, could not tell, and could not look up |
//! | `tower_mq.dead_letters`, `tower_mq.dead_letter.failures`, `tower_mq.dead_letter.given_up` | counter | | copies stored, failed, and given up |
//! | `tower_mq.breaker.state` | gauge | | 0 closed, 1 half open, 2 open |
//! | `tower_mq.stale`, `tower_mq.lease_lost` | counter | | decisions that came too late |
//! | `tower_mq.dropped`, `tower_mq.not_handled` | counter | | released undecided, and released untried |
//! | `tower_mq.replaced` | counter | | outcomes the broker cannot do |
//! | `tower_mq.reconnects`, `tower_mq.connect.failures` | counter | | connections after the first, and attempts that failed |
//! | `tower_mq.panics`, `tower_mq.warnings` | counter | | |
//!
//! The source's labels are `messaging.system` and `messaging.destination.name`, which is the
//! [name of the source](tower_mq_delivery::Origin::name), never that of a single message.
//!
//! No label is made of a message or an error: no key, id, token or text. The number of series is bounded by the number
//! of sources, of which the first 64 have a name of their own; those after them share `_OTHER`.
//!
//! # Recorders
//!
//! Install the recorder before the first delivery. Without one nothing is measured; one that comes later hears of what
//! comes after it, and nothing of deliveries that were taken before. Handles are made at the first record of a source
//! and kept, so that a delivery looks up no name: a recorder that forgets idle series (the Prometheus exporter's
//! `idle_timeout`) loses them for good. `layer()` makes none.
//!
//! Histograms need buckets: [`convention::DURATION_BUCKETS`] and [`own::BATCH_BUCKETS`]. The example `health.rs` sets
//! them, and `grafana.json` beside it is a dashboard for the result.
//!
//! # Order
//!
//! [`delivery`](MetricsLayer::delivery) outermost: inside Partition it would not see what waits in the lanes.
//! [`process`](MetricsLayer::process) innermost, inside of Retry and Timeout: further out it times the waits between
//! tries, too. A try that is cut off by a time-out outside of it ends as `cancelled`.
//!
//! # Cancel safety, Panics, Cost
//! See [`Metrics`].

pub mod convention;
mod deliveries;
mod destinations;
mod error_type;
mod events;
pub mod future;
mod installed;
mod keys;
mod layer;
mod measured;
mod observer;
pub mod own;
mod service;
mod tries;

pub use layer::MetricsLayer;
pub use observer::MetricsObserver;
pub use service::Metrics;

#[cfg(test)]
mod tests;
