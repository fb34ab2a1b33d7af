//! Handles deliveries side by side, those of one key in order.

mod capacity;
mod error;
pub mod future;
mod key;
mod lane;
mod layer;
mod service;
mod slots;
mod sync;

pub use error::{Closed, NoRuntime};
pub use key::LaneKey;
pub use layer::PartitionLayer;
pub use service::Partition;
