//! A panic is an error to the layers around.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, retry::Policy, service_fn};
use tower_mq_delivery::{Batch, BoxError, Delivery, Message, Outcome, Outcomes, Panicked};
use tower_mq_testing::contract;

use super::{Alive, Guard, Source, hang};
use crate::{CatchPanicLayer, SettleLayer};

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    contract::check::<Message, _>(CatchPanicLayer::new()).await;
    contract::check::<Delivery, _>(CatchPanicLayer::new()).await;
}

/// Panics where it is told to, holding a guard.
#[derive(Clone)]
struct Panics {
    at: &'static str,
    alive: Alive,
}

struct Running(&'static str, #[allow(dead_code)] Guard);

impl<R> Service<R> for Panics {
    type Response = Outcome;
    type Error = BoxError;
    type Future = Running;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        assert!(self.at != "poll_ready", "in poll_ready");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Running {
        assert!(self.at != "call", "in call");
        Running(self.at, self.alive.guard())
    }
}

impl Future for Running {
    type Output = Result<Outcome, BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.0 != "poll", "in poll");
        match self.0 {
            "error" => Poll::Ready(Err("down".into())),
            _ => Poll::Ready(Ok(Outcome::Release)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        assert!(self.0 != "drop", "in drop");
    }
}

#[test]
fn a_panic_is_an_error_that_tells_what_was_said_and_is_reported_once() {
    for at in ["call", "poll", "drop"] {
        let (source, alive) = (Source::new(), Alive::default());
        let mut service = CatchPanicLayer::new().layer(Panics { at, alive: alive.clone() });
        let (message, _acker) = source.deliver().into_parts();
        let mut response = task::spawn(service.call(message));
        let error = assert_ready_err!(response.poll());
        assert!(error.is::<Panicked>() && error.to_string().contains(&format!("in {at}")), "{error}");
        assert_eq!((source.events(), alive.get()), (vec!["panicked"], false), "{at}");
        assert_pending!(response.poll(), "it has ended");
        // The next one is none the worse for it.
        service.get_mut().at = "nowhere";
        let (message, _acker) = source.deliver().into_parts();
        assert_eq!(assert_ready_ok!(task::spawn(service.call(message)).poll()), Outcome::Release);
    }
}

#[test]
fn what_does_not_panic_is_left_alone() {
    let mut service = CatchPanicLayer::new().layer(Panics { at: "nowhere", alive: Alive::default() });
    let message = || Message::new("");
    assert_eq!(assert_ready_ok!(task::spawn(service.call(message())).poll()), Outcome::Release);
    service.get_mut().at = "error";
    assert_eq!(assert_ready_err!(task::spawn(service.call(message())).poll()).to_string(), "down");
}

#[test]
fn a_panic_in_readiness_is_an_error_of_readiness() {
    let panics = Panics { at: "poll_ready", alive: Alive::default() };
    let mut service = task::spawn(CatchPanicLayer::new().layer(panics));
    let ready = service.enter(|cx, mut service| Service::<Message>::poll_ready(&mut *service, cx));
    assert!(assert_ready_err!(ready).is::<Panicked>());
}

#[test]
fn in_a_batch_nobody_is_blamed() {
    let source = Source::new();
    let service = CatchPanicLayer::new().layer(service_fn(async |batch: Batch<Message>| {
        assert!(batch.len() > 2, "too few");
        Ok::<_, BoxError>(Outcomes::from(Outcome::Ack))
    }));
    let message = || source.deliver().into_parts().0;
    for (members, event) in [(1, "panicked"), (2, "something else")] {
        let batch: Batch<Message> = (0..members).map(|_| message()).collect::<Vec<_>>().into();
        let error = assert_ready_err!(task::spawn(service.clone().call(batch)).poll());
        assert!(error.is::<Panicked>());
        assert_eq!(std::mem::take(&mut *source.events.lock()), [event]);
    }
}

#[derive(Clone)]
struct Twice(u32);

impl<T> Policy<Message, T, BoxError> for Twice {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, message: &mut Message, result: &mut Result<T, BoxError>) -> Option<Self::Future> {
        let panicked = result.as_ref().err().is_some_and(|error| error.is::<Panicked>());
        self.0 = self.0.checked_sub(1).filter(|_| panicked)?;
        message.again();
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, message: &Message) -> Option<Message> {
        Some(message.clone())
    }
}

#[tokio::test]
async fn a_retry_layer_sees_the_panic_and_settle_the_end() {
    let source = Source::answering(Ok(tower_mq_delivery::Settlement::Confirmed));
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .retry(Twice(2))
        .layer(CatchPanicLayer::new())
        .service_fn(|message: Message| async move {
            assert!(message.tries() == 3, "try {}", message.tries());
            Ok::<_, BoxError>(())
        });
    stack.oneshot(source.deliver()).await.expect("settled");
    source.settled_once(&Outcome::Ack);
    assert_eq!(source.events(), ["panicked", "panicked"]);
}

#[test]
fn a_response_that_is_dropped_drops_what_runs() {
    let alive = Alive::default();
    let held = alive.clone();
    let mut service = CatchPanicLayer::new().layer(service_fn(move |_: Message| hang(held.clone())));
    let mut response = task::spawn(service.call(Message::new("")));
    assert_pending!(response.poll());
    assert!(alive.get());
    drop(response);
    assert!(!alive.get());
}

#[test]
fn outside_of_settle_a_delivery_whose_service_panics_is_released() {
    let source = Source::new();
    let mut service = CatchPanicLayer::new().layer(service_fn(async |delivery: Delivery| {
        assert!(delivery.message().key().is_some(), "no key");
        Ok::<_, BoxError>(())
    }));
    assert_ready_err!(task::spawn(service.call(source.deliver())).poll());
    source.dropped_once();
}
