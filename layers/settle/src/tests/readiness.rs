//! The inner service's readiness is the layer's.

use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};
use tower_mq_delivery::{BoxError, Message, Outcome};
use tower_test::mock;

use super::Source;
use crate::SettleLayer;

#[tokio::test]
async fn it_is_ready_when_the_inner_service_is_and_wakes_with_it() {
    let (mut service, mut handle) = mock::spawn_layer::<_, (), _>(SettleLayer::new());
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
    assert_ready_ok!(service.poll_ready(), "it stays ready");

    let source = Source::new();
    let response = service.call(source.deliver());
    let (message, answer) = handle.next_request().await.expect("called");
    let message: Message = message;
    assert_eq!(message.payload(), "secret");
    answer.send_response(());
    assert_eq!(response.await.expect("settled").outcome, Outcome::Ack);
}

#[tokio::test]
async fn a_service_that_will_never_be_ready_again_says_so() {
    let (mut service, mut handle) = mock::spawn_layer::<Message, (), _>(SettleLayer::new());
    handle.send_error("gone");
    let error: BoxError = assert_ready_err!(service.poll_ready());
    assert_eq!(error.to_string(), "gone");
}
