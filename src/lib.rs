//! What tower-http is for HTTP, tower-mq is for message queues.

pub mod source;
mod serve;

pub use serve::{Ended, Report, Serve, ServeError, serve};
pub use tower_mq_delivery::*;
