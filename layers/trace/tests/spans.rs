//! What a subscriber hears of deliveries.

mod record;

use std::{
    future::pending,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use record::{record, record_up_to};
use tokio_test::task::spawn;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{
    Batch, BoxError, Capabilities, Failure, Generation, Message, Origin, Outcome, Outcomes, Panicked,
    SettleError, Settled, Settlement,
};
use tower_mq_testing::{delivery, gate};
use tower_mq_trace::TraceLayer;
use tracing::Level;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn message() -> Message {
    Message::builder("two teas")
        .key("a key is in no span")
        .destination("orders")
        .id("order-1")
        .correlation_id("table-7")
        .attempt(2)
        .header("traceparent", TRACEPARENT)
        .build()
}

/// What is recorded of a service that answers this.
async fn recorded<T: 'static, E: 'static>(answer: Result<T, E>) -> record::Span {
    let (heard, _guard) = record();
    let answer = std::cell::Cell::new(Some(answer));
    let service = service_fn(|_: Message| std::future::ready(answer.take().expect("called once")));
    let _ = TraceLayer::new().layer(service).oneshot(message()).await;
    heard.only()
}

#[tokio::test]
async fn a_span_says_what_the_convention_asks_for() {
    let span = recorded(Ok::<_, BoxError>(Outcome::Ack)).await;
    assert_eq!((span.name, span.level, span.parent), ("process", Level::INFO, None));
    let expected = [
        ("messaging.destination.name", "orders"),
        ("messaging.message.body.size", "8"),
        ("messaging.message.conversation_id", "table-7"),
        ("messaging.message.id", "order-1"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("otel.kind", "consumer"),
        ("otel.name", "process orders"),
        ("parent_id", "00f067aa0ba902b7"),
        ("tower_mq.attempt", "2"),
        ("tower_mq.outcome", "ack"),
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ];
    assert_eq!(span.fields.iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn the_kind_of_broker_is_that_of_the_source() {
    let (heard, _guard) = record();
    let origin = Origin::new("orders", "rabbitmq", 1, Capabilities::unknown());
    let generation = Generation::first(Arc::new(origin));
    let message = Message::builder("").generation(generation).build();
    let service = service_fn(async |_: Message| Ok::<_, BoxError>(()));
    TraceLayer::new().layer(service).oneshot(message).await.expect("answered");
    let span = heard.only();
    assert_eq!(span.field("messaging.system"), Some("rabbitmq"));
    assert_eq!(span.field("otel.name"), Some("process orders"), "of a message that names no queue");
    assert_eq!(span.field("tower_mq.outcome"), Some("ack"), "of a service that answers ()");
}

#[tokio::test]
async fn a_message_without_a_name_or_a_context_has_a_span_without_them() {
    let (heard, _guard) = record();
    let service = service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack));
    TraceLayer::new().layer(service).oneshot(Message::new("")).await.expect("answered");
    let span = heard.only();
    let fields: Vec<_> = span.fields.keys().copied().collect();
    let expected = [
        "messaging.message.body.size",
        "messaging.operation.name",
        "messaging.operation.type",
        "otel.kind",
        "otel.name",
        "tower_mq.outcome",
    ];
    assert_eq!((fields, span.field("otel.name")), (expected.to_vec(), Some("process")));
}

/// Outcome, error's type, whether it failed, description.
type End = (Option<&'static str>, Option<&'static str>, Option<&'static str>);

#[track_caller]
fn ended(span: &record::Span, end: End) {
    let (outcome, error, description) = end;
    assert_eq!(span.field("tower_mq.outcome"), outcome, "{span:?}");
    assert_eq!(span.field("error.type"), error, "{span:?}");
    assert_eq!(span.field("otel.status_code"), error.map(|_| "ERROR"), "{span:?}");
    assert_eq!(span.field("otel.status_description"), description, "{span:?}");
    assert!(span.closed && span.entered == span.exited, "{span:?}");
}

#[tokio::test]
async fn an_outcome_is_recorded_whatever_type_it_comes_in() {
    let ok = Ok::<_, BoxError>;
    let retry = || Outcome::Retry { after: Duration::ZERO };
    ended(&recorded(ok(Outcome::Ack)).await, (Some("ack"), None, None));
    ended(&recorded(ok(Outcome::Release)).await, (Some("release"), None, None));
    ended(&recorded(ok(retry())).await, (Some("retry"), Some("retry"), None));
    let settled = Settled::new(Outcome::reject("no tea"), Settlement::Confirmed);
    ended(&recorded(Ok::<_, BoxError>(settled)).await, (Some("reject"), Some("reject"), Some("no tea")));
    ended(&recorded(Ok::<_, io::Error>(())).await, (Some("ack"), None, None));
    ended(&recorded(Ok::<_, BoxError>("something else")).await, (None, None, None));
}

#[tokio::test]
async fn an_error_is_recorded_with_a_type_of_which_there_are_few() {
    let error = Err::<Outcome, BoxError>;
    ended(&recorded(error("at table 7".into())).await, (None, Some("_OTHER"), Some("at table 7")));
    ended(
        &recorded(error(Failure::reject("no tea").into())).await,
        (Some("reject"), Some("_OTHER"), Some("no tea")),
    );
    let panicked = Panicked::new(&(Box::new("on purpose") as _));
    ended(&recorded(error(panicked.into())).await, (None, Some("panic"), Some("panicked: on purpose")));
    let unsettled = SettleError::Ended;
    let text = unsettled.to_string();
    let span = recorded(error(Failure::release(unsettled).into())).await;
    ended(&span, (Some("release"), Some("settlement"), Some(Box::leak(text.into_boxed_str()))));
    let span = recorded(Err::<Outcome, _>(io::Error::other("disk"))).await;
    ended(&span, (None, Some("std::io::error::Error"), None));
    ended(&recorded(Err::<Outcome, _>("text")).await, (None, Some("_OTHER"), None));
}

#[tokio::test]
async fn a_batch_is_one_span_that_says_what_is_true_of_all() {
    let member = |queue: &'static str| Message::builder("").destination(queue).id("1").build();
    let answered = async |members: Vec<Message>, answer: Outcomes| {
        let (heard, _guard) = record();
        let mut answer = Some(answer);
        let service = service_fn(move |_: Batch<Message>| {
            std::future::ready(Ok::<_, BoxError>(answer.take().expect("once")))
        });
        TraceLayer::new().layer(service).oneshot(Batch::from(members)).await.expect("answered");
        heard.only()
    };
    let ack = || Outcomes::All(Outcome::Ack);
    let span = answered(vec![member("orders"), member("orders")], ack()).await;
    assert_eq!(span.field("messaging.batch.message_count"), Some("2"));
    assert_eq!((span.field("otel.name"), span.field("messaging.message.id")), (Some("process orders"), None));
    ended(&span, (Some("ack"), None, None));

    let span = answered(vec![member("orders"), member("bills")], ack()).await;
    assert_eq!((span.field("otel.name"), span.field("messaging.destination.name")), (Some("process"), None));
    let span = answered(vec![member("orders")], ack()).await;
    assert_eq!(span.field("messaging.batch.message_count"), Some("1"), "a batch of one is a batch");

    let each =
        |each: Vec<Result<Outcome, BoxError>>| answered(vec![member("orders"); 2], Outcomes::Each(each));
    ended(&each(vec![Ok(Outcome::Ack), Ok(Outcome::Ack)]).await, (Some("ack"), None, None));
    ended(&each(vec![Ok(Outcome::Ack), Ok(Outcome::Release)]).await, (Some("mixed"), None, None));
    let one = each(vec![Ok(Outcome::Ack), Ok(Outcome::reject("cold"))]).await;
    ended(&one, (Some("mixed"), Some("reject"), Some("cold")));
    let one = each(vec![Ok(Outcome::Ack), Err("spilt".into())]).await;
    ended(&one, (Some("mixed"), Some("_OTHER"), Some("spilt")));
}

#[tokio::test]
async fn the_span_is_entered_in_call_and_across_awaits_and_closed_when_the_response_is_there() {
    let (heard, _guard) = record();
    let (handler, gate) = gate();
    let service = service_fn(move |message: Message| {
        tracing::info!("called");
        let mut handler = handler.clone();
        async move {
            tracing::info!("polled");
            let answer = handler.call(message).await;
            tracing::info!("awaited");
            answer
        }
    });
    let mut service = TraceLayer::new().layer(service);
    let mut response = spawn(service.call(message()));
    assert!(response.poll().is_pending());
    let (id, current) = (heard.only().id, || tracing::Span::current().id().map(|id| id.into_u64()));
    assert_eq!((current(), heard.only().closed), (None, false));
    // Another one runs in between.
    let other = service.call(message());
    drop(other);
    gate.next().await.answer(Outcome::Ack);
    assert!(response.poll().is_ready());
    // The future is still there, the span is not.
    let first = heard.spans().into_iter().next().expect("the first span");
    assert!(first.closed && first.entered == first.exited && current().is_none());
    let in_span: Vec<_> =
        heard.events().into_iter().filter(|(span, _)| *span == Some(id)).map(|(_, text)| text).collect();
    assert_eq!(in_span, ["called", "polled", "awaited"]);
    drop(response);
    assert_eq!(heard.spans()[0].field("tower_mq.outcome"), Some("ack"));
}

/// Panics that are meant need not be read.
fn quietly() {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&"planned") {
                usual(info);
            }
        }));
    });
}

/// Says that it is dropped.
struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        tracing::info!("dropped");
    }
}

#[tokio::test]
async fn what_is_dropped_is_dropped_in_its_span() {
    let (heard, _guard) = record();
    let (done, left) = (message(), message());
    let mut service = TraceLayer::new().layer(service_fn(|message: Message| {
        let last = Last;
        async move {
            let _last = last;
            match message.attempt() {
                Some(2) => pending().await,
                _ => Ok::<_, BoxError>(Outcome::Ack),
            }
        }
    }));
    let mut response = spawn(service.call(left));
    assert!(response.poll().is_pending());
    let id = heard.only().id;
    drop(response);
    assert_eq!(heard.events(), [(Some(id), "dropped".into())]);
    ended(&heard.only(), (Some("dropped"), None, None));
    // Never polled.
    drop(service.call(done));
    let span = heard.spans().pop().expect("the second span");
    assert_eq!(heard.events()[1], (Some(span.id), "dropped".into()));
    ended(&span, (Some("dropped"), None, None));
}

#[tokio::test]
async fn a_panic_leaves_no_span_entered() {
    quietly();
    let (heard, _guard) = record();
    let mut service = TraceLayer::new().layer(service_fn(|message: Message| {
        assert!(message.attempt().is_some(), "planned");
        async move {
            assert!(message.attempt() == Some(1), "planned");
            Ok::<_, BoxError>(Outcome::Ack)
        }
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| service.call(Message::new("")))).is_err());
    let mut response = pin!(service.call(message()));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(catch_unwind(AssertUnwindSafe(|| response.as_mut().poll(&mut cx))).is_err());
    assert!(tracing::Span::current().is_none());
    let spans = heard.spans();
    assert_eq!(spans.len(), 2);
    ended(&spans[0], (Some("dropped"), Some("panic"), None));
    ended(&spans[1], (Some("dropped"), Some("panic"), None));
}

#[tokio::test]
async fn spans_nest_as_the_layers_do() {
    let (heard, _guard) = record();
    let around = tracing::info_span!("around");
    let inner = TraceLayer::new()
        .level(Level::DEBUG)
        .layer(service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack)));
    let mut service = TraceLayer::new().layer(inner);
    let response = around.in_scope(|| service.call(message()));
    response.await.expect("answered");
    let spans = heard.spans();
    let levels = [Level::INFO, Level::INFO, Level::DEBUG];
    assert_eq!(spans.iter().map(|span| span.level).collect::<Vec<_>>(), levels);
    assert_eq!(spans[1].parent, Some(spans[0].id));
    assert_eq!(spans[2].parent, Some(spans[1].id));
}

#[tokio::test]
async fn every_level_is_a_level_and_one_that_nobody_wants_makes_no_span() {
    for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
        let (heard, _guard) = record_up_to(Level::INFO);
        let service = service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack));
        TraceLayer::new().level(level).layer(service).oneshot(message()).await.expect("answered");
        let expected = if level <= Level::INFO { vec![level] } else { vec![] };
        assert_eq!(heard.spans().iter().map(|span| span.level).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_malformed_context_is_logged_and_the_message_handled() {
    let (heard, _guard) = record();
    let message = Message::builder("").header("traceparent", "00-nonsense").build();
    let service = service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack));
    TraceLayer::new().continue_trace().layer(service).oneshot(message).await.expect("answered");
    assert_eq!(heard.only().field("trace_id"), None);
    let (_, event) = heard.events().pop().expect("an event");
    assert!(event.contains("`traceparent`") && event.contains("begins a trace of its own"), "{event}");
}

#[tokio::test]
async fn a_delivery_is_traced_as_its_message_is() {
    let (heard, _guard) = record();
    let (delivery, probe) = delivery(message());
    let service = service_fn(async |delivery: tower_mq_delivery::Delivery| {
        let settlement = delivery.settle(Outcome::Ack).await?;
        Ok::<_, SettleError>(Settled::new(Outcome::Ack, settlement))
    });
    TraceLayer::new().layer(service).oneshot(delivery).await.expect("settled");
    probe.assert_settled(&Outcome::Ack);
    assert_eq!(heard.only().field("messaging.message.id"), Some("order-1"));
}
