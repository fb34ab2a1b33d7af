//! Duplicates in whole stacks, on the embedded broker.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use futures_util::StreamExt;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tower::ServiceBuilder;
use tower_mq::{
    Batch, BatchLayer, BoxError, Bytes, DeadLetterLayer, DedupLayer, FailureExt, Message, Outcome,
    PartitionLayer, SettleLayer, handler, serve, source::memory,
};

type Result<T = (), E = BoxError> = std::result::Result<T, E>;

fn message(id: &'static str) -> Message {
    Message::builder("three apples").id(id).key("alice").build()
}

/// A queue with these messages.
fn queue(ids: &[&'static str]) -> Result<memory::Broker> {
    let broker = memory::Broker::new();
    for id in ids {
        broker.publish("orders", message(id))?;
    }
    Ok(broker)
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_sent_back_is_handled_and_not_acked_unseen() -> Result {
    let broker = queue(&["7"])?;
    let (dedup, repaired, sold) =
        (DedupLayer::in_memory(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    for (expected, dead) in [(0, 1), (1, 0)] {
        let (works, shop) = (repaired.clone(), sold.clone());
        let stack = ServiceBuilder::new()
            .layer(PartitionLayer::by_key(2))
            .layer(SettleLayer::new())
            .layer(dedup.clone())
            .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead")))
            .service(handler(move |_: Bytes| {
                let handled = match works.load(SeqCst) {
                    true => Ok(shop.fetch_add(1, Relaxed)),
                    false => Err("there are no apples").or_reject(),
                };
                async move { handled.map(|_| Outcome::Ack) }
            }));
        let orders = broker.queue("orders").consume();
        serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await?;
        assert_eq!((sold.load(Relaxed), broker.len("orders.dead")), (expected, dead));
        repaired.store(true, SeqCst);
        // Somebody has looked at it, and sends it back as it is.
        if dead > 0 {
            let letter = broker.queue("orders.dead").consume().next().await.ok_or("no dead letter")?;
            assert_eq!(letter.message().id().as_deref(), Some("7"));
            broker.publish("orders", letter.message().clone())?;
            let _settling = letter.settle(Outcome::Ack);
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_twin_behind_its_first_one_in_an_open_batch_does_not_hold_it_open() -> Result {
    for batch in [BatchLayer::new(10).ready(), BatchLayer::new(10).wait(Duration::from_secs(1))] {
        let broker = queue(&["1", "2", "1", "3", "2", "2"])?;
        let members = Arc::new(AtomicU32::new(0));
        let count = members.clone();
        let stack = ServiceBuilder::new()
            .layer(PartitionLayer::by_key(2))
            .layer(SettleLayer::new())
            .layer(DedupLayer::in_memory())
            .layer(batch)
            .service(handler(move |batch: Batch<Bytes>| {
                count.fetch_add(batch.len() as u32, Relaxed);
                async { Ok::<_, BoxError>(()) }
            }));
        let orders = broker.queue("orders").consume();
        let served = serve(orders, stack).with_graceful_shutdown(broker.drained("orders"));
        let report = timeout(Duration::from_secs(60), served).await??;
        assert_eq!((report.counts.acked, members.load(Relaxed)), (6, 3));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_comes_again_while_it_runs_is_acked_and_not_handled_again() -> Result {
    for partition in [PartitionLayer::unordered(4), PartitionLayer::by_key(4)] {
        let broker = queue(&["1"])?;
        let (runs, begun) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let (count, begins) = (runs.clone(), begun.clone());
        let stack = ServiceBuilder::new()
            .layer(partition)
            .layer(SettleLayer::new())
            .layer(DedupLayer::in_memory())
            .service(handler(move |_: Bytes| {
                count.fetch_add(1, Relaxed);
                begins.notify_one();
                async {
                    sleep(Duration::from_secs(10)).await;
                    Ok::<_, BoxError>(())
                }
            }));
        let orders = broker.queue("orders").consume();
        let drained = broker.drained("orders");
        let served = tokio::spawn(async move { serve(orders, stack).with_graceful_shutdown(drained).await });
        begun.notified().await;
        broker.disconnect_consumers();
        let report = timeout(Duration::from_secs(60), served).await???;
        assert_eq!((report.counts.taken, runs.load(Relaxed), broker.len("orders")), (2, 1, 0));
    }
    Ok(())
}
