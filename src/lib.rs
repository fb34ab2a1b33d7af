//! What [tower-http](https://docs.rs/tower-http) is for HTTP, `tower-mq` is for message queues.
//!
//! Broker sources are plain `Stream<Item = Delivery>`. What happens to a delivery on its way to your handler is a stack
//! of Tower [`Layer`](https://docs.rs/tower-layer)s: ordered lanes by key, settlement, batches, retries, dead letters,
//! deduplication, metrics, traces, and the middleware of `tower` that you use already. You write one async function,
//! stack the layers that you need in a `ServiceBuilder`, and hand both to [`serve`]:
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::{BoxError, ServiceBuilder, limit::ConcurrencyLimitLayer, timeout::TimeoutLayer};
//! use tower_mq::{
//!     Backoff, BreakerLayer, Bytes, DeadLetterLayer, DedupLayer, Key, Message, MetricsLayer, PartitionLayer,
//!     RetryLayer, SettleLayer, TraceLayer, handler, serve, source::memory,
//! };
//!
//! async fn handle_order(key: Key, order: Bytes) -> Result<(), BoxError> {
//!     println!("{key:?} orders {order:?}");
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let broker = memory::Broker::new();
//! broker.publish("orders", Message::builder("three apples").key("alice").build())?;
//! let orders = broker.queue("orders").window(256).consume();
//!
//! let backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_secs(1));
//! let stack = ServiceBuilder::new()
//!     .layer(MetricsLayer::delivery()) // each delivery, from taken to settled
//!     .layer(TraceLayer::new()) // a span for each, with the trace of its sender
//!     .layer(BreakerLayer::new()) // takes nothing while too many fail
//!     .layer(PartitionLayer::by_key(8)) // 8 lanes, each in order
//!     .layer(SettleLayer::new()) // result -> ack, retry, reject: exactly once
//!     .layer(DedupLayer::in_memory()) // each message id once
//!     .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead"))) // a confirmed copy of what is rejected
//!     .layer(RetryLayer::in_place(backoff).attempts(3)) // here, and in order
//!     .layer(ConcurrencyLimitLayer::new(4)) // tower's own, unchanged
//!     .layer(TimeoutLayer::new(Duration::from_secs(5)))
//!     .layer(MetricsLayer::process()) // each try
//!     .service(handler(handle_order));
//!
//! # let ctrl_c = || broker.drained("orders");
//! let report = serve(orders, stack).with_graceful_shutdown(ctrl_c()).await?;
//! assert_eq!(report.counts.acked, 1);
//! # Ok(())
//! # }
//! ```
//!
//! No layer needs another one, but for [`SettleLayer`], which nearly every stack wants.
//!
//! # Order
//!
//! A stack runs one delivery at a time, in the queue's order, whatever is in it. [`PartitionLayer`] is what makes it
//! run several at once: deliveries of one lane one after the other, lanes beside each other. A retry
//! through the broker ([`Outcome::Retry`]), a release and a lost connection give the order of a key up.
//!
//! # The order of the layers
//!
//! Outermost first. What stands elsewhere works, but means something else.
//!
//! | layer | why here | elsewhere |
//! |---|---|---|
//! | [`MetricsLayer::delivery`] | sees a delivery from taken to settled | inside of Partition it does not see the queue |
//! | [`TraceLayer`] | Partition carries its span into the lane | inside of a retry, each try is a span |
//! | [`BreakerLayer`] | looks at outcomes, holds back the next delivery | inside of Partition each lane waits with one |
//! | tower's rate limit, buffer | not `Clone`, or made for one queue | a rate limit cannot stand inside Partition |
//! | [`PartitionLayer`] | takes over the order | |
//! | [`SettleLayer`] | turns results into outcomes | outside Partition a time-out would settle what still runs |
//! | [`DedupLayer`] | goes by the final outcome | inside of a retry it forgets the id between the tries, and a twin may run then |
//! | [`DeadLetterLayer`] | acks a reject when its copy is confirmed | inside of a retry it sees what is tried again |
//! | [`BatchLayer`] | layers outside see members, layers inside see batches | outside of Settle: does not compile |
//! | [`RetryLayer`] | tries again in place, and in order | outside of Partition a retry goes to the end of its lane |
//! | tower's retry, filters, concurrency limit | see a `Message`, which is `Clone` | a retry outside of Partition goes to the end of its lane |
//! | tower's time-out | times the handler | outside of Retry it times all tries, outside of Partition the queue, too |
//! | [`CatchPanicLayer`] | makes the panics of a service errors, as `handler` does | outside of a retry they are not tried again |
//! | [`MetricsLayer::process`] | times each try | outside of a retry it times the waits, too |
//! | [`handler`] | takes its arguments out of the message | |
//!
//! Load shedding is not for queues: what is shed comes back at once.
//!
//! # Promises
//!
//! 1. **Order**, as above.
//! 2. **Settled exactly once.** Return, error, panic, time-out, cancel, drop, drain: each delivery reaches its source
//!    once. One that is dropped is released, and counted. One whose connection has ended is not handled at all: it will
//!    come again.
//! 3. **Nothing lost.** A delivery leaves the broker after success, after its dead-letter copy is confirmed, or because
//!    you chose to discard it.
//! 4. **Nothing silent.** A source that ends without being asked to is an error of [`serve`]. Reconnecting is the
//!    default and shows in [`Health`](source::Health).
//! 5. **Bounded.** What is taken and not settled never exceeds the window. One stuck handler costs one place of it.
//! 6. **Duplicates are explained.** After a fault only those come again whose settlement the broker has not provably
//!    stored. What a broker proves, and when it forgets, is in the docs of its source.
//! 7. **Shutdown.** Stop taking, finish or release, settle, flush, close, within a deadline; the [`Report`] counts.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `batch`, `breaker`, `dead-letter`, `dedup`, `handler`, `metrics`, `partition`, `retry`, `settle`, `trace` | yes | the layers of that name |
//! | `json` | | `Json<T>` as a handler's argument |
//! | `opentelemetry` | | W3C trace context in and out, by `tracing-opentelemetry` |
//! | `redis` | | a store for deduplication that several processes share |
//! | `testing` | | scripted sources, probes, and the contract checks for layers, sources and stores |
//! | `rabbitmq` | | [`source::rabbitmq`](source): AMQP 0.9.1 |
//! | `full` | | all of these |

pub mod prelude;
mod serve;
pub mod source;
#[cfg(feature = "testing")]
pub mod testing;

/// The payload of a message, and an argument of handlers.
pub use bytes::Bytes;
pub use serve::{Ended, Report, Serve, ServeError, serve};
#[cfg(feature = "batch")]
pub use tower_mq_batch::{self as batch, BatchLayer, Batcher};
#[cfg(feature = "breaker")]
pub use tower_mq_breaker::{self as breaker, Breaker, BreakerLayer};
#[cfg(feature = "dead-letter")]
pub use tower_mq_dead_letter::{self as dead_letter, DeadLetter, DeadLetterLayer};
#[cfg(feature = "dedup")]
pub use tower_mq_dedup::{self as dedup, Dedup, DedupLayer};
pub use tower_mq_delivery::*;
#[cfg(feature = "json")]
pub use tower_mq_handler::Json;
#[cfg(feature = "handler")]
pub use tower_mq_handler::{
    Arguments, Attempt, Destination, Extracted, FromMessage, Handler, HandlerFn, Key, Rejection, handler,
};
#[cfg(feature = "metrics")]
pub use tower_mq_metrics::{self as metrics, Metrics, MetricsLayer};
#[cfg(feature = "partition")]
pub use tower_mq_partition::{self as partition, LaneKey, Partition, PartitionLayer};
#[cfg(feature = "retry")]
pub use tower_mq_retry::{self as retry, Backoff, Retry, RetryLayer};
#[cfg(feature = "settle")]
pub use tower_mq_settle::{self as settle, CatchPanic, CatchPanicLayer, SettleLayer, Settler};
#[cfg(feature = "trace")]
pub use tower_mq_trace::{self as trace, Trace, TraceContext, TraceLayer};

/// The stack of the README compiles.
#[cfg(all(doctest, feature = "json", feature = "rabbitmq"))]
#[doc = include_str!("../README.md")]
struct Readme;
