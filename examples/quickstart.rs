//! Orders through the whole stack, on the embedded broker: `cargo run --example quickstart`.
//!
//! Two customers, two lanes. Each customer's orders are handled in order, both customers at once. One order fails the
//! first time and comes again; one can never be handled and ends as a dead letter.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tower::{BoxError, ServiceBuilder, timeout::TimeoutLayer};
use tower_mq::{
    Attempt, Bytes, ErrorPolicy, FailureExt, Key, LaneKey, Message, PartitionLayer, SettleLayer, handler,
    serve, source::memory,
};

const LANES: usize = 2;
const CUSTOMERS: [&str; 2] = ["alice", "bob"];

/// Books the apples of an order. An order of 13 finds the warehouse closed the first time.
async fn book(timeline: Timeline, key: Key, attempt: Attempt, text: Bytes) -> Result<(), BoxError> {
    let text = String::from_utf8_lossy(&text).into_owned();
    let entry = timeline.begin(&key, &text, attempt.0.unwrap_or(1));
    sleep(Duration::from_millis(30)).await;
    let booked = apples(&text, attempt);
    entry.end(&booked);
    booked
}

fn apples(text: &str, attempt: Attempt) -> Result<(), BoxError> {
    // Nobody can ever read this order: no second attempt, a dead letter at once.
    let apples: u32 = text.parse().or_reject()?;
    if apples == 13 && attempt.0 == Some(1) {
        return Err("the warehouse is closed".into());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let broker = memory::Broker::new();
    for (customer, order) in [
        ("alice", "1"),
        ("bob", "5"),
        ("alice", "2"),
        ("bob", "13"),
        ("alice", "3"),
        ("bob", "a dozen"),
        ("alice", "4"),
        ("bob", "6"),
    ] {
        broker.publish("orders", Message::builder(order).key(customer).build())?;
    }

    let timeline = Timeline::default();
    let printed = timeline.clone();
    let policy = ErrorPolicy::retry_within(5, Duration::from_millis(50), Duration::from_secs(1));
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(LANES))
        .layer(SettleLayer::new().on_error(policy))
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service(handler(move |key, attempt, text| book(timeline.clone(), key, attempt, text)));

    let orders = broker.queue("orders").window(16).dead_letters("orders.dead").consume();

    printed.header();
    let report = serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await?;
    println!("\n{report}");
    println!("dead letters: {}", broker.len("orders.dead"));
    Ok(())
}

/// Prints who is handled when, a column for each customer.
#[derive(Clone)]
struct Timeline(Arc<Mutex<Instant>>);

impl Default for Timeline {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

struct Entry {
    timeline: Timeline,
    column: usize,
    what: String,
}

impl Timeline {
    fn header(&self) {
        *self.0.lock() = Instant::now();
        print!("{:>6}", "ms");
        for customer in CUSTOMERS {
            let lane = LaneKey::of(customer).lane(LANES).unwrap_or_default();
            print!("  {:<36}", format!("{customer} (lane {lane})"));
        }
        println!();
    }

    fn begin(&self, key: &Key, text: &str, attempt: u32) -> Entry {
        let customer = key.0.as_deref().unwrap_or_default();
        let column = CUSTOMERS.iter().position(|name| name.as_bytes() == customer).unwrap_or_default();
        let what = match attempt {
            1 => format!("order of {text}"),
            _ => format!("order of {text}, attempt {attempt}"),
        };
        self.print(column, &format!("> {what}"));
        Entry { timeline: self.clone(), column, what }
    }

    fn print(&self, column: usize, text: &str) {
        let start = self.0.lock();
        println!("{:>6}  {}{text}", start.elapsed().as_millis(), " ".repeat(38 * column));
    }
}

impl Entry {
    fn end(self, booked: &Result<(), BoxError>) {
        let text = match booked {
            Ok(()) => format!("< {} booked", self.what),
            Err(error) => format!("x {}: {error}", self.what),
        };
        self.timeline.print(self.column, &text);
    }
}
