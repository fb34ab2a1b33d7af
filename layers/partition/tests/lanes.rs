//! Promises of every mode.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message};
use tower_mq_partition::PartitionLayer;

#[tokio::test(start_paused = true)]
async fn n_lanes_run_n_deliveries_at_a_time() {
    let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = service_fn({
        let (running, peak) = (running.clone(), peak.clone());
        move |message: Message| {
            let (running, peak) = (running.clone(), peak.clone());
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, BoxError>(message.payload().clone())
            }
        }
    });
    let mut service = PartitionLayer::by_key(4).layer(handler);
    let mut answers = Vec::new();
    for n in 0..100u8 {
        let message = Message::builder(vec![n]).key(vec![n]).build();
        answers.push(service.ready().await.expect("ready").call(message));
    }
    for (n, answer) in (0..).zip(answers) {
        assert_eq!(answer.await.expect("answered")[0], n);
    }
    assert_eq!(peak.load(Ordering::SeqCst), 4);
}
