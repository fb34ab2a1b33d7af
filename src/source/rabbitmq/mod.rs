//! RabbitMQ, over AMQP 0.9.1: a queue as a source, and a publisher that confirms.

mod compose;
mod connect;
mod convert;
mod error;
mod options;
mod press;
mod properties;
mod publish;
mod pump;
mod settle;
mod stream;
mod tray;
mod tried;
mod value;

pub use error::PublishError;
pub use options::{OnReject, Queue};
pub use properties::Properties;
pub use publish::{Publisher, Publishing, ResponseFuture};
pub use stream::Deliveries;
