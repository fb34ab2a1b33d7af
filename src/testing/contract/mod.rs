//! Whether a layer keeps its contract ([`check`]), and whether a source keeps its own ([`source`]).
//!
//! # Layers
//! See [`check`] and [`find_fault`].
//!
//! # Sources
//! Who writes a source writes a [`Rig`] for it, and calls one function. It plays, on a real broker, what happens to a
//! consumer, and looks for
//!
//! - the order: as published, each message once, with its key; an absent key told from an empty one,
//! - odd messages: empty, a mebibyte, binary,
//! - each outcome: an ack is gone, a release comes again, a retry comes again after its delay and counts as an attempt, a
//!   reject ends where it should; a delivery that is dropped comes again,
//! - attempts from 1, marks of redelivery, reports of each settlement,
//! - the window: never exceeded, fully used, and one stuck delivery costs one place of it,
//! - pause, resume, and both ways to close; an end that nobody asked for is an error,
//! - a lost connection: what was decided is not decided again, all else comes again, a settlement of the lost generation
//!   is stale; health tells of it.
//!
//! ```
//! use tower_mq::{
//!     BoxError, Message,
//!     source::memory::{Broker, Consumer},
//!     testing::contract::{self, Rig},
//! };
//!
//! /// The in-process broker: an empty one for each case.
//! #[derive(Default)]
//! struct InProcess(Broker);
//!
//! impl Rig for InProcess {
//!     type Source = Consumer;
//!
//!     async fn empty(&mut self) -> Result<(), BoxError> {
//!         self.0 = Broker::new();
//!         Ok(())
//!     }
//!
//!     async fn publish(&mut self, message: Message) -> Result<(), BoxError> {
//!         self.0.publish("orders", message)?;
//!         Ok(())
//!     }
//!
//!     async fn consume(&mut self, window: usize) -> Result<Consumer, BoxError> {
//!         Ok(self.0.queue("orders").window(window).consume())
//!     }
//!
//!     async fn cut(&mut self) -> Result<bool, BoxError> {
//!         self.0.disconnect_consumers();
//!         Ok(true)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! contract::source(&mut InProcess::default()).await;
//! # }
//! ```

mod bench;
mod ends;
mod fault;
mod outcomes;
mod reconnect;
mod rig;
mod taking;

pub use tower_mq_testing::contract::*;

pub use fault::SourceFault;
pub use rig::Rig;

use bench::Bench;

/// Panics if the source behind the rig breaks the contract; the message tells which promise, and in which case.
///
/// Within about ten seconds on a broker that answers at once; with a paused clock, on one inside this process, at once.
///
/// # Panics
/// If the source breaks the contract, or the rig fails.
pub async fn source<R: Rig>(rig: &mut R) {
    if let Err(fault) = find_source_fault(rig).await {
        panic!("{fault}");
    }
}

/// [`source`] for those who want to look at the fault.
///
/// # Errors
/// The first fault that is found.
pub async fn find_source_fault<R: Rig>(rig: &mut R) -> Result<(), SourceFault> {
    taking::in_order(&mut Bench::new(rig, "taking what was published")).await?;
    taking::odd(&mut Bench::new(rig, "taking odd messages")).await?;
    taking::window(&mut Bench::new(rig, "the window is full")).await?;
    taking::paused(&mut Bench::new(rig, "it is paused")).await?;
    outcomes::acked(&mut Bench::new(rig, "deliveries are acked")).await?;
    outcomes::released(&mut Bench::new(rig, "a delivery is released")).await?;
    outcomes::dropped(&mut Bench::new(rig, "a delivery is dropped")).await?;
    outcomes::retried(&mut Bench::new(rig, "a delivery is to be retried")).await?;
    outcomes::rejected(&mut Bench::new(rig, "a delivery is rejected")).await?;
    ends::finishes(&mut Bench::new(rig, "it is closed, to finish")).await?;
    ends::releases(&mut Bench::new(rig, "it is closed, to release")).await?;
    ends::idle(&mut Bench::new(rig, "it is closed with nothing to do")).await?;
    ends::dropped(&mut Bench::new(rig, "it is dropped")).await?;
    ends::ruined(&mut Bench::new(rig, "its broker is gone for good")).await?;
    reconnect::comes_back(&mut Bench::new(rig, "its connection is cut")).await?;
    reconnect::again_and_again(&mut Bench::new(rig, "its connection is cut again and again")).await
}
