//! Panics, and what is dropped.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use futures_util::FutureExt as _;
use tokio::time::advance;
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, service_fn};
use tower_mq_delivery::{BoxError, Message, Outcome};

use super::{SECOND, Source, gated, is_ready, quick};

/// Panics while it runs.
async fn explodes(_: Message) -> Result<Outcome, BoxError> {
    panic!("boom")
}

/// Panics in `call`.
#[derive(Clone, Debug)]
struct Explosive;

impl Service<Message> for Explosive {
    type Response = Outcome;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Outcome, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Message) -> Self::Future {
        panic!("boom")
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_goes_on_and_is_a_failure() {
    let source = Source::new();
    let mut running = quick().layer(service_fn(explodes));
    let mut calling = quick().layer(Explosive);
    for _ in 0..2 {
        assert!(is_ready(&mut running) && is_ready(&mut calling));
        let call = running.call(source.message());
        assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| calling.call(source.message()))).is_err());
    }
    assert!(!is_ready(&mut running) && !is_ready(&mut calling));
    advance(SECOND).await;
    assert!(is_ready(&mut running));
    assert!(AssertUnwindSafe(running.call(source.message())).catch_unwind().await.is_err());
    advance(SECOND).await;
    assert!(!is_ready(&mut running), "a probe that panics has failed: two seconds");
    advance(SECOND).await;
    assert!(is_ready(&mut running));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_counts_for_nothing() {
    let (source, (mut service, _gate)) = (Source::new(), gated(&quick()));
    for polled in [true, false].repeat(10) {
        assert!(is_ready(&mut service));
        let mut response = task::spawn(service.call(source.message()));
        if polled {
            assert_pending!(response.poll());
        }
        drop(response);
    }
    assert!(is_ready(&mut service));
}

#[tokio::test]
#[should_panic(expected = "called before it was ready")]
async fn a_call_without_readiness_is_refused() {
    let (mut service, _gate) = gated(&quick());
    drop(service.call(Message::new("")));
}
