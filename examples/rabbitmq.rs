//! Handles the messages of a queue on RabbitMQ, eight at a time, those of one key in order:
//!
//! ```text
//! cargo run --example rabbitmq --features rabbitmq -- amqp://guest:guest@localhost:5672/%2f orders
//! ```
//!
//! End it with ctrl-c: it finishes what runs, settles, and says what it has done.

use std::{env, time::Duration};

use tower::{ServiceBuilder, timeout::TimeoutLayer};
use tower_mq::{
    BoxError, Message, PartitionLayer, SettleLayer, serve,
    source::{Source, State, rabbitmq::Queue},
};

async fn handle(message: Message) -> Result<(), BoxError> {
    let key = message.key().map_or("no key".into(), |key| String::from_utf8_lossy(key));
    println!("{key}: {} bytes, attempt {:?}", message.payload().len(), message.attempt());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(queue)) = (arguments.next(), arguments.next()) else {
        return Err("say where: rabbitmq <url> <queue>".into());
    };

    // Rejects: say what the broker does with them, `.on_reject(..)`. Until then, they come again.
    let messages = Queue::new(queue).prefetch(256).connect(&url).await?;

    let mut health = messages.handle().watch();
    health.mark_changed();
    tokio::spawn(async move {
        while health.changed().await.is_ok() {
            match &health.borrow_and_update().state {
                State::Connecting => println!("-- connecting"),
                State::Connected { generation, .. } => println!("-- connected (connection {generation})"),
                State::Reconnecting { attempt, error, .. } => {
                    println!("-- attempt {attempt} failed: {error}")
                }
                State::Closed { .. } => println!("-- closed"),
                _ => {}
            }
        }
    });

    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service_fn(handle);

    // A task of its own runs on the workers of the runtime, and not beside them.
    let serving = serve(messages, stack).with_graceful_shutdown(tokio::signal::ctrl_c());
    let report = tokio::spawn(serving).await??;
    println!("{report}");
    Ok(())
}
