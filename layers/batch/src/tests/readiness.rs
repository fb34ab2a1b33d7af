//! The readiness of the inner service.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_mq_delivery::{Batch, BoxError, Message, Outcome, SharedError};
use tower_mq_testing::{Gated, gate};

use super::{Queue, answered, batch, join, rest};
use crate::BatchLayer;

/// Ready, unless it is shut; when it is broken it says so.
#[derive(Clone)]
struct Door {
    inner: Gated<Batch<Message>>,
    shut: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
    waker: Arc<Mutex<Option<std::task::Waker>>>,
    asked: Arc<AtomicUsize>,
}

impl Door {
    fn new(inner: Gated<Batch<Message>>) -> Self {
        let (shut, broken) = (Arc::default(), Arc::default());
        Self { inner, shut, broken, waker: Arc::default(), asked: Arc::default() }
    }

    fn open(&self) {
        self.shut.store(false, Ordering::Relaxed);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

impl Service<Batch<Message>> for Door {
    type Response = tower_mq_delivery::Outcomes;
    type Error = BoxError;
    type Future = <Gated<Batch<Message>> as Service<Batch<Message>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.broken.load(Ordering::Relaxed) {
            return Poll::Ready(Err("worn out".into()));
        }
        if self.shut.load(Ordering::Relaxed) {
            *self.waker.lock() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, batch: Batch<Message>) -> Self::Future {
        self.inner.call(batch)
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_gathers_until_the_inner_service_is_ready() {
    let (handler, gate) = gate();
    let door = Door::new(handler);
    let (mut service, lane) = (BatchLayer::new(3).layer(door.clone()), Queue::new(256).lane());
    door.shut.store(true, Ordering::Relaxed);
    let _first = join(&mut service, lane.message("0")).await;
    tokio::time::sleep(super::ms(20)).await;
    let asked = door.asked.load(Ordering::Relaxed);
    let _second = join(&mut service, lane.message("1")).await;
    rest().await;
    assert_eq!(door.asked.load(Ordering::Relaxed), asked, "it is not asked again for each member");
    door.open();
    assert_eq!(batch(&gate.next().await).0, ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn readiness_that_nobody_needs_any_more_is_given_back() {
    let (handler, gate) = gate();
    let limited = ServiceBuilder::new().concurrency_limit(1).service(handler);
    let queue = Queue::new(256);
    let (mut service, a, b) = (BatchLayer::new(1).layer(limited), queue.lane(), queue.lane());
    let _running = join(&mut service, a.message("0")).await;
    let running = gate.next().await;
    let gone = join(&mut service, b.message("1")).await;
    rest().await;
    drop(gone);
    running.answer(Outcome::Ack);
    rest().await;
    let mut next = join(&mut service, a.message("2")).await;
    rest().await;
    gate.try_next().expect("the place is free").answer(Outcome::Ack);
    rest().await;
    assert!(answered(&mut next).is_ok());
}

#[tokio::test(start_paused = true)]
async fn readiness_is_not_kept_for_a_batch_that_is_not_due_yet() {
    let (handler, gate) = gate();
    let limited = ServiceBuilder::new().concurrency_limit(1).service(handler);
    let layer = BatchLayer::new(2).wait(super::ms(3_600_000)).group_by(|message| message.payload().clone());
    let queue = Queue::new(256);
    let (mut service, a, b) = (layer.layer(limited), queue.lane(), queue.lane());
    let _two = [join(&mut service, a.message("0")).await, join(&mut service, a.message("0")).await];
    let running = gate.next().await;
    let gone = [join(&mut service, b.message("1")).await, join(&mut service, b.message("1")).await];
    let _open = join(&mut service, b.message("2")).await;
    rest().await;
    drop(gone);
    running.answer(Outcome::Ack);
    rest().await;
    let _next = [join(&mut service, a.message("3")).await, join(&mut service, a.message("3")).await];
    rest().await;
    assert_eq!(batch(&gate.try_next().expect("the place is free")).0, ["3", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_will_never_be_ready_is_told_to_all_who_wait_and_who_come() {
    let (handler, gate) = gate();
    let door = Door::new(handler);
    let queue = Queue::new(256);
    let (mut service, a, b) =
        (BatchLayer::new(2).capacity(4).layer(door.clone()), queue.lane(), queue.lane());
    let mut running = join(&mut service, b.message("0")).await;
    tokio::time::sleep(super::ms(11)).await;
    let call = gate.next().await;
    let mut readied = service.clone();
    readied.ready().await.expect("ready");
    let mut waits = join(&mut service, b.message("1")).await;
    let mut clone = service.clone();
    door.broken.store(true, Ordering::Relaxed);
    let mut members = Vec::new();
    members.push(join(&mut service, a.message("2")).await);
    let mut readiness = tokio_test::task::spawn(());
    assert!(readiness.enter(|cx, _| clone.poll_ready(cx)).is_pending());
    tokio::time::sleep(super::ms(11)).await;
    assert!(readiness.is_woken());
    for member in members.iter_mut().chain([&mut waits]) {
        let error = answered(member).expect_err("never ready");
        assert!(error.is::<SharedError>() && error.to_string() == "worn out");
    }
    for service in [&mut service, &mut clone] {
        assert_eq!(service.ready().await.map(drop).expect_err("final").to_string(), "worn out");
    }
    let error = readied.call(a.message("3")).await.expect_err("it was ready before");
    assert_eq!(error.to_string(), "worn out");
    call.answer(Outcome::Ack);
    rest().await;
    assert_eq!(answered(&mut running).expect("what runs is finished"), "ack");
}

#[tokio::test(start_paused = true)]
async fn members_whose_generation_ends_while_readiness_is_asked_for_are_not_handled() {
    #[derive(Clone)]
    struct Ends(Door, Arc<tower_mq_delivery::Generation>);

    impl Service<Batch<Message>> for Ends {
        type Response = tower_mq_delivery::Outcomes;
        type Error = BoxError;
        type Future = <Door as Service<Batch<Message>>>::Future;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            self.1.end();
            self.0.poll_ready(cx)
        }

        fn call(&mut self, batch: Batch<Message>) -> Self::Future {
            self.0.call(batch)
        }
    }

    let ((handler, gate), queue) = (gate(), Queue::new(256));
    let ends = Ends(Door::new(handler), queue.generation.clone());
    let (mut service, lane) = (BatchLayer::new(1).layer(ends), queue.lane());
    let mut member = join(&mut service, lane.message("0")).await;
    rest().await;
    assert_eq!(answered(&mut member).expect("decided"), "release");
    assert_eq!(gate.waiting(), 0);
}
