//! What all stacks have in common: messages, a runtime, and what is counted of a run.

use std::{
    convert::Infallible,
    hint::black_box,
    io::Write,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tower::service_fn;
use tower_mq::{
    Counts, Drain, Message,
    source::{Source, memory},
};
use tower_service::Service;

use crate::allocator;

pub(crate) type Served = Pin<Box<dyn Future<Output = Counts> + Send>>;

/// Runs the stack that the arguments name.
pub(crate) fn run(prepare: impl FnOnce(&Runtime, &str, usize, usize) -> Served) {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, stack, deliveries, keys @ ..] = &arguments[..] else {
        panic!("usage: count STACK DELIVERIES [KEYS]");
    };
    let deliveries: usize = deliveries.parse().expect("DELIVERIES is a number");
    let keys: usize = keys.first().map_or(1024, |keys| keys.parse().expect("KEYS is a number"));

    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let served = prepare(&runtime, stack, deliveries, keys);
    let (counts, allocations) = allocator::counted(|| measured(&runtime, served));
    assert_eq!(counts.taken as usize, deliveries, "every delivery is taken once");
    println!("{stack} deliveries={deliveries} keys={keys} allocations={allocations}");
}

/// What callgrind counts: it is told to begin and end with this function.
#[inline(never)]
fn measured(runtime: &Runtime, served: Served) -> Counts {
    runtime.block_on(async { tokio::spawn(served).await.expect("the run does not panic") })
}

/// Ids are made only where somebody looks for them: they cost something when they are dropped.
pub(crate) fn messages(deliveries: usize, keys: usize, ids: bool) -> Vec<Message> {
    // As brokers send them: payload and key are slices of one frame.
    let message = |i: usize| {
        let mut frame = vec![7; 128];
        write!(frame, "k{}", i % keys).expect("memory takes it");
        let frame = Bytes::from(frame);
        let message = Message::builder(frame.slice(..128)).key(frame.slice(128..));
        if ids { message.id(i.to_string()).build() } else { message.build() }
    };
    (0..deliveries).map(message).collect()
}

/// A queue of the embedded broker, and a handler that closes it after the last message.
pub(crate) fn queue(
    broker: &memory::Broker,
    messages: Vec<Message>,
) -> (
    memory::Consumer,
    impl Service<Message, Response = (), Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static,
) {
    let left = Arc::new(AtomicUsize::new(messages.len()));
    for message in messages {
        broker.publish("orders", message).expect("the broker is open");
    }
    let consumer = broker.queue("orders").window(256).consume();
    let handle = consumer.handle();
    let handler = service_fn(move |message: Message| {
        black_box(message.payload().len());
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            handle.close(Drain::Finish);
        }
        async { Ok::<_, Infallible>(()) }
    });
    (consumer, handler)
}
