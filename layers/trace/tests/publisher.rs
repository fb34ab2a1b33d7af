//! What a subscriber hears of publications, and what they go out with where there is no OpenTelemetry.

mod record;

use record::record;
use tower::{Layer, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message, Publication, Receipt, Value};
use tower_mq_trace::{TraceContext, TraceLayer};
use tracing::Level;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn bill() -> Publication {
    Publication::new(Message::builder("the bill").id("bill-1").correlation_id("table-7").build())
}

#[tokio::test]
async fn a_span_says_what_the_convention_asks_for() {
    let (heard, _guard) = record();
    let publisher = service_fn(async |_: Publication| Ok::<_, BoxError>(Receipt::with_id("9")));
    let publisher = TraceLayer::publisher().system("rabbitmq").destination("bills").layer(publisher);
    publisher.oneshot(bill()).await.expect("published");
    let span = heard.only();
    assert_eq!((span.name, span.level, span.closed), ("publish", Level::INFO, true));
    let expected = [
        ("messaging.destination.name", "bills"),
        ("messaging.message.body.size", "8"),
        ("messaging.message.conversation_id", "table-7"),
        ("messaging.message.id", "bill-1"),
        ("messaging.operation.name", "publish"),
        ("messaging.operation.type", "send"),
        ("messaging.system", "rabbitmq"),
        ("otel.kind", "producer"),
        ("otel.name", "publish bills"),
        ("tower_mq.receipt", "9"),
    ];
    assert_eq!(span.fields.iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn the_destination_of_the_publication_comes_first_and_none_is_none() {
    for (publication, name) in [(bill().to("others"), "publish others"), (bill(), "publish")] {
        let (heard, _guard) = record();
        let publisher = service_fn(async |_: Publication| Ok::<_, BoxError>(Receipt::new()));
        TraceLayer::publisher().layer(publisher).oneshot(publication).await.expect("published");
        assert_eq!(heard.only().field("otel.name"), Some(name));
    }
}

#[tokio::test]
async fn a_refusal_is_recorded() {
    let (heard, _guard) = record();
    let publisher = service_fn(async |_: Publication| Err::<Receipt, BoxError>("no such queue".into()));
    let refused = TraceLayer::publisher().layer(publisher).oneshot(bill()).await;
    assert_eq!(refused.expect_err("refused").to_string(), "no such queue");
    let span = heard.only();
    assert_eq!((span.field("error.type"), span.field("otel.status_code")), (Some("_OTHER"), Some("ERROR")));
    assert_eq!(span.field("otel.status_description"), Some("no such queue"));
}

#[tokio::test]
async fn a_level_that_nobody_wants_makes_no_span() {
    let (heard, _guard) = record::record_up_to(Level::INFO);
    let publisher = service_fn(async |_: Publication| Ok::<_, BoxError>(Receipt::new()));
    TraceLayer::publisher().level(Level::DEBUG).layer(publisher).oneshot(bill()).await.expect("published");
    assert!(heard.spans().is_empty());
}

#[tokio::test]
async fn without_opentelemetry_a_publication_goes_out_with_what_it_has() {
    let (_heard, _guard) = record();
    let order = Message::builder("").header("traceparent", TRACEPARENT).build();
    let context = TraceContext::of(&order).expect("well formed");
    for (publication, out) in [
        (bill(), None),
        (Publication::new(order), Some(Value::from(TRACEPARENT))),
        (context.inject(bill()), Some(TRACEPARENT.into())),
    ] {
        let seen = service_fn(async |publication: Publication| {
            let set = publication.headers.into_iter().find(|(name, _)| name == "traceparent").map(|(_, v)| v);
            Ok::<_, BoxError>(set.or(publication.message.header("traceparent").map(Value::into_owned)))
        });
        let seen = TraceLayer::publisher().layer(seen).oneshot(publication).await.expect("published");
        assert_eq!(seen, out);
    }
}

#[tokio::test]
async fn it_forwards_readiness() {
    let (mut mock, mut handle) =
        tower_test::mock::spawn_layer::<Publication, Receipt, _>(TraceLayer::publisher());
    handle.allow(0);
    tokio_test::assert_pending!(mock.poll_ready());
    handle.allow(1);
    assert!(mock.is_woken());
    tokio_test::assert_ready_ok!(mock.poll_ready());
}
