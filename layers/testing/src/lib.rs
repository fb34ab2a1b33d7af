//! What tests of stacks, handlers and layers need: scripted deliveries, probes that tell what became of them, handlers
//! that are completed by hand, and a check of the contract that every layer keeps.
//!
//! Users find all of it in `tower_mq::testing`, where the scripted stream is a source for `serve`.
//!
//! | to test | use |
//! |---|---|
//! | a whole stack | [`source()`], a [`Script`] and a [`Probe`] for each delivery |
//! | what happens when the connection is lost, a message comes twice or in another order | [`Script`], [`Again`] |
//! | what happens when a settlement is slow, late or refused | [`Reply`] |
//! | one service | [`delivery()`] |
//! | when a handler ends, and in which order | [`gate()`] |
//! | how many run at a time, per key and in all | [`Recorder`] |
//! | that a layer passes the turn | [`turn()`] |
//! | that a layer keeps Tower's contract and ours | [`contract::check`] |
//! | that a source keeps its contract | `tower_mq::testing::contract::source` |
//!
//! # Time
//! Everything goes by tokio's clock. Pause it (`#[tokio::test(start_paused = true)]`), and a script with delays takes no
//! time.
//!
//! ```
//! use tower::{Service, service_fn};
//! use tower_mq_delivery::{Delivery, Message, Outcome};
//! use tower_mq_testing::{assert_settled, delivery};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let mut service = service_fn(async |delivery: Delivery| delivery.settle(Outcome::Ack).await);
//! let (order, probe) = delivery(Message::new("two teas"));
//! service.call(order).await.unwrap();
//! assert_settled!(probe, Outcome::Ack);
//! # }
//! ```

pub mod contract;
mod gate;
mod probe;
mod recorder;
mod reply;
mod script;
mod turn;

pub use gate::{Call, Gate, Gated, GatedFuture, gate};
pub use probe::{Probe, delivery};
pub use recorder::{Recorded, RecordedFuture, Recorder};
pub use reply::Reply;
pub use script::{Again, Script, Scripted, source, source_of};
pub use turn::{TurnProbe, turn};
