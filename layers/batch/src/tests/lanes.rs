//! Owners of turns, and the lanes of a partition.

use std::sync::Arc;

use parking_lot::Mutex;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_mq_delivery::{Batch, BoxError, Message, Outcome};
use tower_mq_partition::PartitionLayer;
use tower_mq_testing::{Recorder, gate};

use super::{Queue, answered, batch, join, ms, rest};
use crate::BatchLayer;

#[tokio::test(start_paused = true)]
async fn a_batch_never_mixes_owners_whose_batches_run_side_by_side() {
    let (handler, gate) = gate();
    let queue = Queue::new(256);
    let (mut service, a, b) = (BatchLayer::new(2).layer(handler), queue.lane(), queue.lane());
    let mut members = Vec::new();
    for (lane, text) in [(&a, "0"), (&b, "1"), (&a, "2"), (&b, "3")] {
        // As layers do that move the service into their futures.
        members.push(join(&mut service.clone(), lane.message(text)).await);
    }
    let (first, second) = (gate.next().await, gate.next().await);
    assert_eq!(
        (batch(&first).0, batch(&second).0),
        (vec!["0".into(), "2".into()], vec!["1".into(), "3".into()])
    );
    second.answer(Outcome::Ack);
    first.answer(Outcome::Ack);
    rest().await;
    members.iter_mut().for_each(|member| assert!(answered(member).is_ok()));
    assert_eq!(service.owners().remembered(), 0);
    drop(service.ready().await);
}

#[tokio::test(start_paused = true)]
async fn owners_that_come_for_ever_are_forgotten() {
    for ready in [false, true] {
        let handler = service_fn(async |_: Batch<Message>| Ok::<_, BoxError>(()));
        let layer = BatchLayer::new(2);
        let mut service = if ready { layer.ready() } else { layer }.layer(handler);
        let queue = Queue::new(256);
        for _ in 0..100 {
            let lane = queue.lane();
            let mut member = join(&mut service, lane.message("0")).await;
            tokio::time::sleep(ms(11)).await;
            assert!(answered(&mut member).is_ok());
            // In `ready` mode the turns may still tell that they are idle.
            assert!(service.owners().remembered() <= usize::from(ready));
            if ready {
                lane.turns.idle();
                assert_eq!(service.owners().remembered(), 0);
                let _member = join(&mut service, lane.message("1")).await;
            }
        }
        tokio::time::sleep(ms(11)).await;
        assert_eq!(service.owners().remembered(), 0);
        assert!(service.owners().holds_nothing());
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_lane_is_given_one_waker_and_not_one_for_each_batch() {
    let handler = service_fn(async |_: Batch<Message>| Ok::<_, BoxError>(()));
    let mut service = BatchLayer::new(2).wait(ms(0)).ready().layer(handler);
    let lane = Queue::new(256).lane();
    let owners = Arc::strong_count(service.owners());
    for _ in 0..10 {
        let mut member = join(&mut service, lane.message("0")).await;
        tokio::time::sleep(ms(1)).await;
        assert!(answered(&mut member).is_ok());
    }
    assert_eq!(Arc::strong_count(service.owners()), owners + 1, "never idle, and one waker");
    drop(lane);
    assert_eq!(service.owners().remembered(), 0, "its turns are gone");
}

/// Moves the inner service into each response, and leaves a clone behind.
#[derive(Clone)]
struct Moves<S>(S);

impl<S> Service<Message> for Moves<S>
where
    S: Service<Message> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, message: Message) -> Self::Future {
        let clone = self.0.clone();
        let mut service = std::mem::replace(&mut self.0, clone);
        Box::pin(async move {
            tokio::task::yield_now().await;
            service.call(message).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn batches_of_lanes_keep_the_order_of_each_key_also_under_a_layer_that_clones_for_each_delivery() {
    for moves in [false, true] {
        let recorder = Recorder::new();
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let theirs = sizes.clone();
        let handler = service_fn(move |batch: Batch<Message>| {
            theirs.lock().push(batch.len());
            async move {
                tokio::time::sleep(ms(3)).await;
                Ok::<_, BoxError>(())
            }
        });
        let batches =
            ServiceBuilder::new().layer(BatchLayer::new(5)).layer(recorder.clone()).service(handler);
        let lanes = PartitionLayer::by_key(4);
        let mut service = match moves {
            true => tower::util::BoxCloneService::new(lanes.layer(Moves(batches))),
            false => tower::util::BoxCloneService::new(lanes.layer(batches)),
        };
        let mut answers = Vec::new();
        for n in 0..200_u32 {
            let message = Message::builder(n.to_string()).key((n % 10).to_string()).build();
            answers.push(tokio::spawn(service.ready().await.expect("ready").call(message)));
        }
        for answer in answers {
            assert_eq!(answer.await.expect("no panic").expect("handled"), Outcome::Ack);
        }
        for key in 0..10 {
            let expected: Vec<_> = (0..20).map(|n| (n * 10 + key).to_string()).collect();
            assert_eq!(recorder.of(key.to_string()), expected);
        }
        assert_eq!(recorder.peak_of_a_key(), 1);
        assert!(recorder.peak() > 1, "lanes run side by side");
        let sizes = sizes.lock();
        assert!(sizes.iter().filter(|size| **size == 5).count() >= 30, "they fill: {sizes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_that_take_what_is_there_wait_for_nothing() {
    for moves in [false, true] {
        let start = tokio::time::Instant::now();
        let handler = service_fn(async |_: Batch<Message>| Ok::<_, BoxError>(()));
        let batches = BatchLayer::new(50).wait(ms(3_600_000)).ready().layer(handler);
        let lanes = PartitionLayer::by_key(2);
        let mut service = match moves {
            true => tower::util::BoxCloneService::new(lanes.layer(Moves(batches))),
            false => tower::util::BoxCloneService::new(lanes.layer(batches)),
        };
        for n in 0..10 {
            let message = Message::builder("").key(n.to_string()).build();
            assert_eq!(
                service.ready().await.expect("ready").call(message).await.expect("handled"),
                Outcome::Ack
            );
        }
        assert_eq!(start.elapsed(), ms(0));
    }
}

/// Real threads, real time: what is left to chance here is seen as a member that is never answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_lanes_on_many_threads_lose_nobody() {
    let recorder = Recorder::new();
    let handler = service_fn(async |batch: Batch<Message>| {
        if batch.len().is_multiple_of(3) {
            tokio::task::yield_now().await;
        }
        match batch.len() % 5 {
            4 => Err("on purpose".into()),
            _ => Ok::<_, BoxError>(()),
        }
    });
    for layer in [BatchLayer::new(7).wait(ms(1)), BatchLayer::new(7).ready().capacity(20)] {
        let service = layer.layer(recorder.layer(handler));
        let queue = Arc::new(Queue::new(64));
        let lanes = (0..8).map(|name| {
            let (mut service, lane) = (service.clone(), queue.lane());
            tokio::spawn(async move {
                let mut open = Vec::new();
                for n in 0..400_usize {
                    let message =
                        lane.take(Message::builder(n.to_be_bytes().to_vec()).key(format!("{name}")));
                    let answer = service.ready().await.expect("ready").call(message);
                    match n % 11 {
                        0 => drop(answer),
                        1 => drop(tokio::time::timeout(ms(0), answer).await),
                        _ => open.push(answer),
                    }
                    if n % 17 == 0 {
                        lane.turns.idle();
                    }
                    if open.len() > 5 {
                        let _answer = open.remove(n % 5).await;
                        for answer in open.drain(..) {
                            let _answer = answer.await;
                        }
                    }
                }
                lane.turns.idle();
                for answer in open {
                    let _answer = answer.await;
                }
            })
        });
        for lane in lanes.collect::<Vec<_>>() {
            lane.await.expect("no panic");
        }
        // The last tasks may have told their members, and not come to rest yet.
        while service.owners().remembered() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(service.owners().holds_nothing());
    }
    assert_eq!(recorder.peak_of_a_key(), 1, "one batch of a lane at a time");
}

#[tokio::test]
async fn it_fits_where_services_are_shared_between_threads() {
    let handler = service_fn(async |_: Batch<Message>| Ok::<_, BoxError>(()));
    let service = tower::util::BoxCloneSyncService::new(BatchLayer::new(1).layer(handler));
    assert_eq!(service.oneshot(Message::new("0")).await.expect("handled"), Outcome::Ack);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_has_nothing_more_closes_its_batch_with_or_without_a_task() {
    let layers = [
        PartitionLayer::by_key(1),
        PartitionLayer::by_key(1).inline(),
        PartitionLayer::per_key(1),
        PartitionLayer::per_key(1).inline(),
        PartitionLayer::unordered(1).inline(),
    ];
    for (n, layer) in layers.into_iter().enumerate() {
        let (handler, gate) = gate();
        let queue = Queue::new(256);
        let mut service = layer.layer(BatchLayer::new(50).wait(ms(3_600_000)).ready().layer(handler));
        let mut answers = Vec::new();
        for text in ["0", "1"] {
            let message = Message::builder(text).key(text).generation(queue.generation.clone()).build();
            answers.push(service.ready().await.expect("ready").call(message));
        }
        let answers = tokio::spawn(async move {
            let [first, second] = <[_; 2]>::try_from(answers).expect("two");
            tokio::join!(first, second)
        });
        let start = tokio::time::Instant::now();
        let call = gate.next().await;
        assert_eq!(start.elapsed(), ms(0), "layer {n} waited");
        assert_eq!(
            batch(&call),
            (vec!["0".into(), "1".into()], tower_mq_delivery::ClosedBy::Idle),
            "layer {n}"
        );
        call.answer(Outcome::Ack);
        let (first, second) = answers.await.expect("no panic");
        assert_eq!((first.expect("handled"), second.expect("handled")), (Outcome::Ack, Outcome::Ack));
    }
}
