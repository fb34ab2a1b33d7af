//! What the layer does when nobody listens.
//!
//! In a file, and so in a process, of its own: `tracing` asks who listens to a span when it is first met, and a test
//! that listens from that very moment on, in another thread, would be missed.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker},
};

use tower::{Layer, Service, service_fn};
use tower_mq_delivery::{BoxError, Delivery, Message, Outcome};
use tower_mq_testing::contract;
use tower_mq_trace::TraceLayer;

fn message() -> Message {
    Message::builder("two teas").id("order-1").build()
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_when_nobody_listens() {
    contract::check::<Message, _>(TraceLayer::new()).await;
    contract::check::<Delivery, _>(TraceLayer::new().continue_trace()).await;
}

#[tokio::test]
async fn it_forwards_readiness_and_keeps_the_types() {
    let (mut mock, mut handle) = tower_test::mock::spawn_layer::<Message, &'static str, _>(TraceLayer::new());
    handle.allow(0);
    tokio_test::assert_pending!(mock.poll_ready());
    handle.allow(1);
    assert!(mock.is_woken());
    tokio_test::assert_ready_ok!(mock.poll_ready());
    let response = mock.call(message());
    let (_, answer) = handle.next_request().await.expect("called");
    answer.send_response("any type");
    assert_eq!(response.await.expect("answered"), "any type");
}

#[tokio::test]
async fn after_its_end_a_future_is_never_ready_again() {
    let service = service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack));
    let mut service = TraceLayer::new().layer(service);
    let mut response = pin!(service.call(message()));
    assert!(poll_fn(|cx| response.as_mut().poll(cx)).await.is_ok());
    assert!(matches!(response.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
}
