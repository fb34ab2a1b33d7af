//! What tower-http is for HTTP, tower-mq is for message queues.

pub mod source;
mod serve;

pub use serve::{Ended, Report, Serve, ServeError, serve};
pub use tower_mq_delivery::*;
#[cfg(feature = "partition")]
pub use tower_mq_partition::*;
#[cfg(feature = "settle")]
pub use tower_mq_settle::{self as settle, SettleLayer, Settler, Unsettled};
#[cfg(feature = "handler")]
pub use tower_mq_handler::{self as handler, Attempt, Destination, FromMessage, Handler, Key, Rejection, handler};
#[cfg(feature = "json")]
pub use tower_mq_handler::Json;
