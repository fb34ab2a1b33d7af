//! What the broker is told, and how often, for every way in which a handler can end.

use std::{io, time::Duration};

use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, timeout::TimeoutLayer};
use tower_mq_delivery::{
    BoxError, ErrorPolicy, Failure, FailureExt, IntoOutcome, Message, Outcome, Panicked, SettleError,
    Settled, Settlement,
};

use super::{Alive, Source, hang};
use crate::{SettleLayer, Unsettled};

const SOON: Outcome = Outcome::Retry { after: Duration::from_secs(1) };

/// The one settlement of a delivery whose handler returns this, under the default policy.
async fn ending<T: IntoOutcome, E: Into<BoxError>>(result: Result<T, E>) -> Outcome {
    let source = Source::new();
    let mut result = Some(result);
    let service = SettleLayer::new().layer(service_fn(move |_: Message| {
        let result = result.take().expect("called once");
        async move { result }
    }));
    let settled = service.oneshot(source.deliver()).await.expect("the source takes it");
    source.settled_once(&settled.outcome);
    assert_eq!(settled.settlement, Settlement::HandedOver, "the broker has not answered");
    settled.outcome
}

#[tokio::test]
async fn a_return_settles_with_what_was_returned() {
    assert_eq!(ending(Ok::<_, BoxError>(())).await, Outcome::Ack);
    assert_eq!(ending(Ok::<_, BoxError>(Outcome::Release)).await, Outcome::Release);
    assert_eq!(ending(Ok::<_, BoxError>(Outcome::reject("old"))).await, Outcome::reject("old"));
    assert_eq!(ending(Ok::<_, BoxError>(Err::<(), _>("inner"))).await, SOON);
}

#[tokio::test]
async fn an_error_settles_with_its_own_decision_or_that_of_the_policy() {
    let error = || io::Error::other("down");
    assert_eq!(ending(Err::<(), _>(error())).await, SOON);
    assert_eq!(ending(Err::<(), _>(Failure::reject(error()))).await, Outcome::reject("down"));
    assert_eq!(ending(Err::<(), _>(Failure::release(error()))).await, Outcome::Release);
    let later = Outcome::Retry { after: Duration::from_secs(9) };
    assert_eq!(ending(Err::<(), _>(Failure::with(later.clone(), error()))).await, later);
    assert_eq!(ending(Err::<(), io::Error>(error()).or_reject()).await, Outcome::reject("down"));
}

#[tokio::test]
async fn a_panic_is_an_error_for_the_policy() {
    fn policy() -> ErrorPolicy {
        ErrorPolicy::from_fn(|_, error| match error.is::<Panicked>() {
            true => Outcome::reject(error.to_string()),
            false => Outcome::Ack,
        })
    }
    let source = Source::new();
    let layer = SettleLayer::new().on_error(policy());
    let in_call =
        layer.layer(service_fn(|_: Message| -> std::future::Ready<Result<(), BoxError>> { panic!("early") }));
    let settled = in_call.oneshot(source.deliver()).await.expect("settled");
    assert_eq!(settled.outcome, Outcome::reject("panicked: early"));
    source.settled_once(&settled.outcome);
    assert_eq!(source.events(), ["panicked"]);

    let source = Source::new();
    let in_poll = layer.layer(service_fn(|message: Message| async move {
        tokio::task::yield_now().await;
        match message.attempt() {
            Some(1) => panic!("late {}", 1),
            _ => Ok::<(), BoxError>(()),
        }
    }));
    let settled = in_poll.oneshot(source.deliver()).await.expect("settled");
    assert_eq!(settled.outcome, Outcome::reject("panicked: late 1"));
    source.settled_once(&settled.outcome);
    assert_eq!(source.events(), ["panicked"]);
}

#[tokio::test]
async fn the_instance_that_panicked_in_call_goes_on() {
    let mut first = true;
    let mut service = SettleLayer::new().layer(service_fn(move |_: Message| {
        assert!(!std::mem::take(&mut first), "the first call panics");
        async { Ok::<_, BoxError>(()) }
    }));
    let (one, two) = (Source::new(), Source::new());
    service.ready().await.expect("ready").call(one.deliver()).await.expect("settled");
    service.ready().await.expect("ready").call(two.deliver()).await.expect("settled");
    one.settled_once(&SOON);
    two.settled_once(&Outcome::Ack);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_is_an_error_and_frees_the_handler_first() {
    let (source, alive) = (Source::new(), Alive::default());
    let theirs = alive.clone();
    let service = ServiceBuilder::new()
        .layer(SettleLayer::new().on_error(ErrorPolicy::from_fn(move |_, error| {
            assert!(error.is::<tower::timeout::error::Elapsed>());
            assert!(!theirs.get(), "the handler is gone before its message is settled");
            Outcome::Release
        })))
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service_fn(|_: Message| hang(alive.clone()));
    let settled = service.oneshot(source.deliver()).await.expect("settled");
    source.settled_once(&settled.outcome);
    assert_eq!(settled.outcome, Outcome::Release);
}

#[test]
fn a_future_dropped_before_its_first_poll_releases_once() {
    let source = Source::new();
    let mut service = SettleLayer::new().layer(service_fn(|_: Message| async { Ok::<_, BoxError>(()) }));
    drop(service.call(source.deliver()));
    source.dropped_once();
}

#[test]
fn a_future_dropped_in_the_middle_releases_once() {
    let (source, alive) = (Source::new(), Alive::default());
    let mut service = SettleLayer::new().layer(service_fn(|_: Message| hang(alive.clone())));
    let mut future = task::spawn(service.call(source.deliver()));
    assert_pending!(future.poll());
    assert_eq!((source.outcomes().len(), source.drops(), alive.get()), (0, 0, true));
    drop(future);
    assert!(!alive.get());
    source.dropped_once();
}

#[test]
fn a_handler_is_gone_before_its_delivery_is_released() {
    use tower_mq_delivery::{Acker, Delivery, Settle, Settling, Token};
    struct Watch(Alive);
    impl Settle for Watch {
        fn settle(&self, _: Token, _: Outcome) -> Settling {
            assert!(!self.0.get(), "somebody still works on the message");
            Settling::done(Ok(Settlement::HandedOver))
        }
    }
    let alive = Alive::default();
    let theirs = alive.clone();
    let mut service = SettleLayer::new().layer(service_fn(move |_: Message| hang(theirs.clone())));
    let delivery = Delivery::new(Message::new(""), Acker::new(std::sync::Arc::new(Watch(alive.clone())), 1));
    let mut future = task::spawn(service.call(delivery));
    assert_pending!(future.poll());
    assert!(alive.get());
    drop(future);
}

#[test]
fn a_future_dropped_after_its_end_does_nothing_more() {
    let source = Source::new();
    let mut service = SettleLayer::new().layer(service_fn(|_: Message| async { Ok::<_, BoxError>(()) }));
    let mut future = task::spawn(service.call(source.deliver()));
    let settled = assert_ready_ok!(future.poll());
    assert_eq!(settled, Settled::new(Outcome::Ack, Settlement::HandedOver));
    assert_pending!(future.poll(), "it is over");
    drop(future);
    source.settled_once(&Outcome::Ack);
}

#[test]
fn confirmed_waits_for_the_broker_and_settles_once_even_if_dropped_meanwhile() {
    let mut service =
        SettleLayer::new().confirmed().layer(service_fn(|_: Message| async { Ok::<_, BoxError>(()) }));
    let source = Source::new();
    let mut future = task::spawn(service.call(source.deliver()));
    assert_pending!(future.poll());
    source.settled_once(&Outcome::Ack);
    source.broker_says(Ok(Settlement::Confirmed));
    assert!(future.is_woken());
    assert_eq!(assert_ready_ok!(future.poll()).settlement, Settlement::Confirmed);
    assert_pending!(future.poll(), "it is over");

    let source = Source::new();
    let mut future = task::spawn(service.call(source.deliver()));
    assert_pending!(future.poll());
    drop(future);
    source.settled_once(&Outcome::Ack);
}

#[tokio::test]
async fn the_error_says_what_was_not_settled_and_why() {
    for layer in [SettleLayer::new(), SettleLayer::new().confirmed()] {
        let source = Source::answering(Err(SettleError::Ended));
        let service = layer.layer(service_fn(|_: Message| async { Ok::<_, BoxError>(()) }));
        let error = service.oneshot(source.deliver()).await.expect_err("not settled");
        assert_eq!(
            error.to_string(),
            "could not tell the broker of `orders` to ack a message, which will come again: \
             the source ended before the broker was told"
        );
        assert!(error.is::<Unsettled>());
        assert!(error.source().expect("the reason").is::<SettleError>());
    }
}

#[test]
fn a_source_that_is_stale_by_then_is_no_error() {
    let source = Source::answering(Ok(Settlement::Stale));
    let mut service = SettleLayer::new().layer(service_fn(|_: Message| async { Ok::<_, BoxError>(()) }));
    let settled = assert_ready!(task::spawn(service.call(source.deliver())).poll()).expect("nothing failed");
    assert_eq!(settled, Settled::new(Outcome::Ack, Settlement::Stale));
}

#[tokio::test]
async fn the_policy_travels_in_the_message() {
    let policy = ErrorPolicy::from_fn(|_, _| Outcome::reject("by the policy"));
    let service = SettleLayer::new().on_error(policy).layer(service_fn(|message: Message| async move {
        // As a dead-letter layer does.
        Ok::<_, BoxError>(message.judge(&io::Error::other("down"), None))
    }));
    let settled = service.oneshot(Source::new().deliver()).await.expect("settled");
    assert_eq!(settled.outcome, Outcome::reject("by the policy"));
}

#[test]
fn a_policy_that_panics_releases_the_delivery_and_its_panic_goes_on() {
    let source = Source::new();
    let policy = ErrorPolicy::from_fn(|_, error| panic!("cannot judge {error}"));
    let layer = SettleLayer::new().on_error(policy);
    let mut service = layer.layer(service_fn(|_: Message| async { Err::<(), BoxError>("down".into()) }));
    let mut future = task::spawn(service.call(source.deliver()));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.poll()))
        .expect_err("the policy panicked");
    source.dropped_once();
    assert_pending!(future.poll(), "it is over");
    drop(future);
    source.dropped_once();
}
