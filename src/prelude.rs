//! What most programs need: `use tower_mq::prelude::*`.
//!
//! [`serve`], the layers, [`handler`] with its arguments, and the traits whose methods a program calls.
//!
//! ```
//! use tower_mq::prelude::*;
//!
//! async fn book(Key(customer): Key, apples: String) -> Result<(), BoxError> {
//!     let apples: u32 = apples.parse().or_reject()?;
//!     println!("{customer:?} gets {apples} apples");
//!     Ok(())
//! }
//!
//! # let _ = handler(book);
//! ```

#[cfg(feature = "batch")]
pub use crate::BatchLayer;
#[cfg(feature = "breaker")]
pub use crate::BreakerLayer;
#[cfg(feature = "dead-letter")]
pub use crate::DeadLetterLayer;
#[cfg(feature = "dedup")]
pub use crate::DedupLayer;
#[cfg(feature = "json")]
pub use crate::Json;
#[cfg(feature = "metrics")]
pub use crate::MetricsLayer;
#[cfg(feature = "partition")]
pub use crate::PartitionLayer;
#[cfg(feature = "trace")]
pub use crate::TraceLayer;
pub use crate::source::Source as _;
#[cfg(feature = "handler")]
pub use crate::{Attempt, Destination, Key, handler};
#[cfg(feature = "retry")]
pub use crate::{Backoff, RetryLayer};
pub use crate::{
    BoxError, Bytes, Delivery, Drain, ErrorPolicy, FailureExt as _, Headers, Message, Outcome, serve,
};
#[cfg(feature = "settle")]
pub use crate::{CatchPanicLayer, SettleLayer};
