//! Handles deliveries side by side, those of one key in order.

mod capacity;
mod error;
pub mod future;
mod inline;
mod key;
mod lane;
mod layer;
mod pool;
mod queues;
mod service;
mod slots;
mod sync;
mod worker;

pub use error::{Closed, NoRuntime};
pub use key::LaneKey;
pub use layer::PartitionLayer;
pub use service::Partition;
