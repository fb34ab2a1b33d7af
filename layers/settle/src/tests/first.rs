//! At most once: the broker is told before the handler runs.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message, Outcome, SettleError, Settlement};

use super::{Alive, Source, hang};
use crate::SettleLayer;

#[tokio::test]
async fn the_ack_is_posted_before_the_handler_is_called() {
    let source = Source::new();
    let told = source.told.clone();
    let service = SettleLayer::new().before().layer(service_fn(move |_: Message| {
        let acks = told.outcomes.lock().len();
        async move {
            assert_eq!(acks, 1);
            Ok::<_, BoxError>(())
        }
    }));
    let settled = service.oneshot(source.deliver()).await.expect("settled");
    assert_eq!(settled.outcome, Outcome::Ack);
    source.settled_once(&Outcome::Ack);
    assert!(source.events().is_empty());
}

#[tokio::test]
async fn whatever_the_handler_does_the_ack_stands() {
    let results: [Result<Outcome, BoxError>; 3] =
        [Ok(Outcome::Release), Err(io::Error::other("down").into()), Ok(Outcome::reject("no"))];
    for result in results {
        let source = Source::new();
        let result = Mutex::new(Some(result));
        let service = SettleLayer::new()
            .before()
            .layer(service_fn(|_: Message| std::future::ready(result.lock().take().expect("once"))));
        assert_eq!(service.oneshot(source.deliver()).await.expect("settled").outcome, Outcome::Ack);
        source.settled_once(&Outcome::Ack);
    }
    let source = Source::new();
    let service = SettleLayer::new().before().layer(service_fn(|message: Message| async move {
        match message.attempt() {
            Some(1) => panic!("boom"),
            _ => Ok::<(), BoxError>(()),
        }
    }));
    assert_eq!(service.oneshot(source.deliver()).await.expect("settled").outcome, Outcome::Ack);
    source.settled_once(&Outcome::Ack);
    assert_eq!(source.events(), ["panicked"]);
}

#[test]
fn a_handler_that_is_cancelled_loses_its_message() {
    let source = Source::new();
    let mut service = SettleLayer::new().before().layer(service_fn(|_: Message| hang(Alive::default())));
    let mut future = task::spawn(service.call(source.deliver()));
    assert_pending!(future.poll());
    drop(future);
    source.settled_once(&Outcome::Ack);
}

#[tokio::test]
async fn a_handler_does_not_run_when_the_ack_is_known_to_have_failed() {
    for answer in [Ok(Settlement::Stale), Ok(Settlement::LeaseLost), Err(SettleError::Ended)] {
        let source = Source::answering(answer);
        let called = Arc::new(Mutex::new(0));
        let service = SettleLayer::new().before().layer(service_fn(|_: Message| {
            *called.lock() += 1;
            async { Ok::<_, BoxError>(()) }
        }));
        let _ = service.oneshot(source.deliver()).await;
        assert_eq!(*called.lock(), 0);
        source.settled_once(&Outcome::Ack);
        assert_eq!(source.events(), ["not handled"]);
    }
}

#[test]
fn with_confirmation_the_handler_first_runs_when_the_broker_has_stored_the_ack() {
    let (source, alive) = (Source::new(), Alive::default());
    let layer = SettleLayer::new().before().confirmed();
    let mut service = layer.layer(service_fn(|_: Message| {
        let alive = alive.clone();
        async move {
            let _guard = alive.guard();
            tokio::task::yield_now().await;
            Ok::<_, BoxError>(())
        }
    }));
    let mut future = task::spawn(service.call(source.deliver()));
    assert_pending!(future.poll());
    assert!(!alive.get(), "it does not run yet");
    source.broker_says(Ok(Settlement::Confirmed));
    assert!(future.is_woken());
    assert_pending!(future.poll());
    assert!(alive.get(), "it runs");
    assert_eq!(assert_ready_ok!(future.poll()).settlement, Settlement::Confirmed);
    source.settled_once(&Outcome::Ack);
}

#[test]
fn with_confirmation_the_handler_never_runs_when_the_broker_did_not_store_the_ack() {
    let source = Source::new();
    let layer = SettleLayer::new().before().confirmed();
    let mut service = layer.layer(service_fn(|message: Message| async move {
        match message.attempt() {
            Some(1) => panic!("must not run"),
            _ => Ok::<(), BoxError>(()),
        }
    }));
    let mut future = task::spawn(service.call(source.deliver()));
    assert_pending!(future.poll());
    source.broker_says(Err(SettleError::Refused("no such lock".into())));
    assert_ready_err!(future.poll());
    source.settled_once(&Outcome::Ack);
    assert_eq!(source.events(), ["not handled"]);
}
