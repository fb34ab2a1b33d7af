mod faults;
mod groups;
mod model;
mod queue;
mod sharing;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use futures_core::Stream;
use tower_mq_delivery::{Delivery, Message, Outcome, Settlement};

use super::{Broker, Consumer};

/// What the consumer gives at once.
fn next(consumer: &mut Consumer) -> Option<Delivery> {
    match poll(consumer, Waker::noop()) {
        Poll::Ready(next) => next,
        Poll::Pending => None,
    }
}

fn poll(consumer: &mut Consumer, waker: &Waker) -> Poll<Option<Delivery>> {
    Pin::new(consumer).poll_next(&mut Context::from_waker(waker))
}

/// What the consumer gives when its time has come.
async fn wait(consumer: &mut Consumer) -> Delivery {
    std::future::poll_fn(|cx| Pin::new(&mut *consumer).poll_next(cx)).await.expect("the consumer goes on")
}

/// All that the consumer gives at once.
fn all(consumer: &mut Consumer) -> Vec<Delivery> {
    std::iter::from_fn(|| next(consumer)).collect()
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(delivery.message().payload()).into_owned()
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

fn publish(broker: &Broker, messages: impl IntoIterator<Item = &'static str>) {
    for message in messages {
        broker.publish("orders", Message::new(message)).expect("the broker is open");
    }
}

/// "key/text".
fn publish_keyed(broker: &Broker, messages: impl IntoIterator<Item = &'static str>) {
    for message in messages {
        let key = message.split_once('/').expect("a key").0;
        broker.publish("orders", Message::builder(message).key(key).build()).expect("the broker is open");
    }
}

fn settle(delivery: Delivery, outcome: Outcome) -> Settlement {
    delivery.settle(outcome).now().expect("it reaches the broker")
}

/// Counts how often it was woken.
#[derive(Default)]
struct Count(std::sync::atomic::AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn counted() -> (Waker, impl Fn() -> usize) {
    let count = Arc::new(Count::default());
    (count.clone().into(), move || count.0.load(std::sync::atomic::Ordering::Relaxed))
}
