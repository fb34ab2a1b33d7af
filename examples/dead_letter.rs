//! Dead letters, and the way back, on the embedded broker: `cargo run --example dead_letter`.
//!
//! Orders that nobody can handle end in a queue of their own, with all that they were and why they were rejected. When the
//! cause is gone, the same library takes them out of there and publishes them to where they came from.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_mq::{
    DeadLetterLayer, FailureExt, Message, Publication, SettleLayer,
    dead_letter::{DEAD_LETTER_QUEUE, DEAD_LETTER_REASON},
    handler, serve,
    source::memory::{Broker, Publisher},
};

/// Takes orders. The first version knows only numbers.
async fn book(order: String, knows_words: Arc<AtomicBool>) -> Result<(), BoxError> {
    let apples: u32 = match (order.as_str(), knows_words.load(Ordering::Relaxed)) {
        ("a dozen", true) => 12,
        // An error that decides: no second attempt.
        (digits, _) => digits.parse().or_reject()?,
    };
    println!("  booked {apples} apples");
    Ok(())
}

/// Runs the stack until the queue is empty.
async fn orders(broker: &Broker, knows_words: &Arc<AtomicBool>) -> Result<(), BoxError> {
    println!("orders:");
    let knows_words = knows_words.clone();
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead")))
        .service(handler(move |order: String| book(order, knows_words.clone())));
    let source = broker.queue("orders").consume();
    let report = serve(source, stack).with_graceful_shutdown(broker.drained("orders")).await?;
    println!("  {report}");
    Ok(())
}

/// Publishes a dead letter to where it came from. It is acked when that is confirmed.
async fn redrive(mut publisher: Publisher, dead: Message) -> Result<(), BoxError> {
    let queue = dead.header(DEAD_LETTER_QUEUE);
    let queue = queue.as_ref().and_then(|queue| queue.as_str()).ok_or("nobody wrote down where it was")?;
    let again = Publication::new(dead.clone()).to(queue.to_owned());
    publisher.ready().await?.call(again).await?;
    println!("  {:?} is back in {queue:?}", dead.payload());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let broker = Broker::new();
    for order in ["3", "a dozen", "7"] {
        let order = Message::builder(order).key("alice").content_type("text/plain").header("tenant", "blue");
        broker.publish("orders", order.build())?;
    }
    let knows_words = Arc::new(AtomicBool::new(false));
    orders(&broker, &knows_words).await?;

    println!("dead letters: {}", broker.len("orders.dead"));
    let publisher = broker.publisher();
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service_fn(move |dead: Message| {
        println!("  {:?}, rejected because: {:?}", dead.payload(), dead.header(DEAD_LETTER_REASON));
        for (name, value) in dead.headers().iter() {
            println!("    {name}: {value:?}");
        }
        redrive(publisher.clone(), dead)
    });
    let dead = broker.queue("orders.dead").consume();
    serve(dead, stack).with_graceful_shutdown(broker.drained("orders.dead")).await?;

    knows_words.store(true, Ordering::Relaxed);
    orders(&broker, &knows_words).await?;
    println!("dead letters: {}", broker.len("orders.dead"));
    Ok(())
}
