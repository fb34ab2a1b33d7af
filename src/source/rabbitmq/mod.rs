//! RabbitMQ, over AMQP 0.9.1: a queue as a source, and a publisher that confirms.
//!
//! ```no_run
//! use tower::ServiceBuilder;
//! use tower_mq::{
//!     BoxError, Message, PartitionLayer, SettleLayer, serve,
//!     source::rabbitmq::{OnReject, Queue},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let orders = Queue::new("orders")
//!     .prefetch(256)
//!     .on_reject(OnReject::BrokerDeadLetters)
//!     .connect("amqp://guest:guest@localhost:5672/%2f")
//!     .await?;
//! let stack = ServiceBuilder::new()
//!     .layer(PartitionLayer::by_key(8))
//!     .layer(SettleLayer::new())
//!     .service_fn(|order: Message| async move {
//!         println!("{:?}: {} bytes", order.key(), order.payload().len());
//!         Ok::<_, BoxError>(())
//!     });
//! let report = serve(orders, stack).with_graceful_shutdown(std::future::pending::<()>()).await?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! # What the broker is told
//!
//! | outcome | the broker is told |
//! |---|---|
//! | [`Ack`](crate::Outcome::Ack) | `basic.ack`, many at once: `multiple` up to the first delivery that is not decided, singly behind it |
//! | [`Release`](crate::Outcome::Release), or dropped | `basic.nack` with `requeue` |
//! | [`Retry`](crate::Outcome::Retry) | the same, when its time has come; until then it is held here, in its place of the window |
//! | [`Reject`](crate::Outcome::Reject) | `basic.reject`, if it was said what the broker does then: [`Queue::on_reject`]. Else it is requeued after a second, and health and log say so |
//!
//! Settlements are posted at once from any thread, and sent by the task that owns the connection, whether the stream
//! is polled or not: when nobody is at work any more, when 64 or a quarter of the window are decided, or after 5 ms;
//! what stands behind an undecided delivery after 50 ms, or when half of the window does. So one stuck handler costs
//! one place of the window. The broker never answers a settlement: [`Settlement::HandedOver`](crate::Settlement) is
//! all that is known.
//!
//! # Order
//! The queue's, as long as nothing is requeued: what comes again comes behind what is out already, so `Release` and
//! `Retry` give up the order of the key. Retry in place keeps it.
//!
//! # Attempts
//! A quorum queue counts deliveries in `x-delivery-count`, and so it counts releases, lost connections and restarts
//! of the consumer, too: mind its `x-delivery-limit`, which RabbitMQ 4 sets to 20. Other queues do not count. There,
//! failed attempts (`Retry`) are counted here, for as many messages as the window holds: a message is known by its id
//! or, without one, by payload and key. What failed elsewhere is not known: such a message has no attempt, and is
//! [`redelivered`](crate::Message::redelivered).
//!
//! # When something fails
//! Each connection is a [`Generation`](crate::Generation). What was taken on a lost one and has not started is not
//! handled; what is decided after its end is [stale](crate::Settlement::Stale) and not sent. The source comes back by
//! itself, with the delays of [`Reconnect`](crate::source::Reconnect), unless the broker refuses for good.
//!
//! The broker never lets more than the window be unsettled. When it delivers number *n* of a connection, it has thus
//! processed all but a window of the settlements before, in the order sent: these are *proven*. What is repeated after
//! a fault is below; measured with 100,000 messages, a window of 256 and eight lanes, on RabbitMQ 3.10
//! (and with 10,000 on 4.0):
//!
//! | fault | noticed | comes again |
//! |---|---|---|
//! | the connection is cut | at once | at most a window: what was not proven. Nothing proven (classic and quorum queues) |
//! | the network swallows everything | after two heartbeats | the same |
//! | the broker is killed, **quorum** queue | at once | the same: an ack is in its log before it counts |
//! | the broker is killed, **classic** queue | at once | **any number**: under load it keeps acks in memory (3.10: its setting `queue_index_max_journal_entries`, 32,768). 19,246 proven acks of 100,000 came again after three kills; on 4.0, the 396 of the last quarter second |
//! | a delivery is out for longer than the broker's `consumer_timeout`, 30 minutes by default: with a handler, in a lane, or held until its retry | when the broker looks, once a minute | the same: the broker closes the channel |
//! | the queue is deleted | at once | the source ends, with an error |
//! | a wrong password, no such queue, no such virtual host; at first or later | at once | the source ends, with an error |
//!
//! In all of them nothing is lost, and the first handlings of each key are in order. For that, the source waits one
//! and a half heartbeats longer when the broker has fallen silent: the broker notices later than the source, and until
//! then keeps the window for the dead connection. After a cut it waits a quarter of a second, as a queue under load may
//! take the window back after the next connection has come. Where it takes longer still, as when something in between
//! resets only our side, only a queue with `x-single-active-consumer` keeps the order.
//!
//! A quorum queue of RabbitMQ 3.10 with a single member may never be usable again if a client calls it within the
//! first tenths of a second after a restart. The source then stays in
//! [`Reconnecting`](crate::source::State::Reconnecting), with "no answer within 10s" as its reason.
//!
//! A message whose headers are tables in tables, hundreds deep, ends the process, and the next one that is handed it:
//! the client (lapin 4.12) reads and drops them by recursion, in its own thread, before the source sees them. A build for
//! release bears a thousand levels, one for debugging not two hundred; the environment variable `RUST_MIN_STACK` moves
//! the limit. Where strangers may publish, let something that checks headers stand before the queue.
//!
//! # The end
//! A source that is closed hands out nothing more, also not what it had already taken: that goes back to its queue
//! when the connection is closed, in the queue's order, at the cost of one delivery in the count of a quorum queue.
//! What was handed out is awaited: acks and rejects are sent; what is released from then on, and retries that were
//! held, go back with the connection, too. The broker has then answered that it processed the last acks, but for one
//! case: a quorum queue keeps settlements to itself while 32 are under way. The consumer is never cancelled: with
//! `x-single-active-consumer`, that would let the next one start too early.
//!
//! # Cost
//! One task and, by the client, one thread for each connection. The client copies each payload once; a key costs one
//! allocation, the message another.

mod compose;
mod confirm;
mod connect;
mod convert;
mod error;
mod options;
mod prefetched;
mod properties;
mod publish;
mod pump;
mod settle;
mod size;
mod stream;
mod tried;
mod value;

pub use error::PublishError;
pub use options::{OnReject, Queue};
pub use properties::Properties;
pub use publish::{Publisher, Publishing, ResponseFuture};
pub use stream::Deliveries;
