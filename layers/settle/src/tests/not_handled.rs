//! Deliveries whose handler must not start.

use tower::{Layer, Service};
use tower_mq_delivery::{BoxError, Drain, Message, Outcome, Settled, Settlement};

use super::Source;
use crate::SettleLayer;

/// Panics if it is called, which would be reported.
fn never(_: Message) -> std::future::Ready<Result<(), BoxError>> {
    panic!("must not be called")
}

#[tokio::test]
async fn a_message_whose_generation_has_ended_is_not_handled() {
    for layer in [SettleLayer::new(), SettleLayer::new().before(), SettleLayer::new().confirmed()] {
        let source = Source::answering(Ok(Settlement::Stale));
        let delivery = source.deliver();
        source.generation.end();
        let settled = layer.layer(tower::service_fn(never)).call(delivery).await.expect("settled");
        assert_eq!(settled, Settled::new(Outcome::Release, Settlement::Stale));
        source.settled_once(&Outcome::Release);
        assert_eq!(source.events(), ["not handled"]);
    }
}

#[test]
fn a_delivery_that_has_not_started_is_released_at_once_when_the_stack_releases() {
    for layer in [SettleLayer::new(), SettleLayer::new().before()] {
        let source = Source::new();
        source.generation.origin().start_drain(Drain::Release);
        drop(layer.layer(tower::service_fn(never)).call(source.deliver()));
        source.settled_once(&Outcome::Release);
        assert_eq!(source.events(), ["not handled"]);
    }
}

#[tokio::test]
async fn a_delivery_is_handled_when_the_stack_finishes_what_it_took() {
    let source = Source::new();
    source.generation.origin().start_drain(Drain::Finish);
    let mut service =
        SettleLayer::new().layer(tower::service_fn(|_: Message| async { Ok::<_, BoxError>(()) }));
    service.call(source.deliver()).await.expect("settled");
    source.settled_once(&Outcome::Ack);
    assert!(source.events().is_empty());
}
