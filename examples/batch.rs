//! Bulk inserts, in the order of each key, on the embedded broker: `cargo run --example batch`.
//!
//! Four lanes gather rows, each for its own batch, and insert up to 50 at a time. What is there is taken at once; nobody
//! waits for a batch to fill. A row that the table refuses is rejected by itself, and the others of its batch stay.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::sleep;
use tower::{BoxError, ServiceBuilder, timeout::TimeoutLayer};
use tower_mq::{
    Batch, BatchLayer, ClosedBy, FailureExt, Message, PartitionLayer, SettleLayer, handler, serve,
    source::memory,
};

const ROWS: u32 = 2_000;
const CUSTOMERS: u32 = 40;

/// A table whose every round trip takes a while, whatever it brings.
#[derive(Clone, Default)]
struct Table {
    rows: Arc<Mutex<HashMap<String, Vec<u32>>>>,
    inserts: Arc<Mutex<Vec<(usize, ClosedBy)>>>,
}

impl Table {
    /// One result for each row, in order.
    async fn insert(self, batch: Batch<Message>) -> Vec<Result<(), BoxError>> {
        sleep(Duration::from_millis(5)).await;
        self.inserts.lock().push((batch.len(), batch.closed_by()));
        batch.iter().map(|row| self.add(row)).collect()
    }

    fn add(&self, row: &Message) -> Result<(), BoxError> {
        let customer = String::from_utf8_lossy(row.key().ok_or("no customer").or_reject()?).into_owned();
        let amount = std::str::from_utf8(row.payload()).or_reject()?.parse().or_reject()?;
        self.rows.lock().entry(customer).or_default().push(amount);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let broker = memory::Broker::new();
    for n in 0..ROWS {
        let row = if n == 777 { "a lot".to_owned() } else { n.to_string() };
        let customer = format!("customer-{}", n % CUSTOMERS);
        broker.publish("rows", Message::builder(row).key(customer).build())?;
    }

    let table = Table::default();
    let inserts = table.clone();
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(4))
        .layer(SettleLayer::new())
        .layer(BatchLayer::new(50).ready())
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service(handler(move |batch: Batch<Message>| inserts.clone().insert(batch)));

    let rows = broker.queue("rows").window(400).dead_letters("rows.dead").consume();
    let report = serve(rows, stack).with_graceful_shutdown(broker.drained("rows")).await?;

    println!("{report}");
    let inserts = table.inserts.lock();
    let full = inserts.iter().filter(|(_, closed_by)| *closed_by == ClosedBy::Size).count();
    println!("{ROWS} rows in {} inserts, {full} of them full", inserts.len());
    println!("refused: {}", broker.len("rows.dead"));
    let in_order = table.rows.lock().values().all(|amounts| amounts.is_sorted());
    println!("every customer's rows are in order: {in_order}");
    Ok(())
}
