//! Traces, as OpenTelemetry exports them.

#![cfg(feature = "opentelemetry")]

use opentelemetry::{
    SpanId, TraceId,
    trace::{SpanKind, Status, TracerProvider as _},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{
    Batch, BoxError, Capabilities, Generation, Message, Origin, Outcome, Outcomes, Publication, Receipt,
};
use tower_mq_trace::{TraceContext, TraceLayer};
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::{Registry, filter::LevelFilter, layer::SubscriberExt};

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

/// Exports the spans of this thread until the guard is dropped.
fn exporting() -> (InMemorySpanExporter, DefaultGuard) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = Registry::default().with(LevelFilter::INFO).with(layer);
    (exporter, tracing::subscriber::set_default(subscriber))
}

/// All spans that have ended.
fn ended(exporter: &InMemorySpanExporter) -> Vec<SpanData> {
    exporter.get_finished_spans().expect("kept in memory")
}

fn named(exporter: &InMemorySpanExporter, name: &str) -> SpanData {
    let spans = ended(exporter);
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name:?} in {spans:#?}")).clone()
}

/// What it links to: trace and span.
fn links(span: &SpanData) -> Vec<(TraceId, SpanId)> {
    span.links.iter().map(|link| (link.span_context.trace_id(), link.span_context.span_id())).collect()
}

fn ids(span: &SpanData) -> (TraceId, SpanId) {
    (span.span_context.trace_id(), span.span_context.span_id())
}

fn sender(parent: u64) -> (TraceId, SpanId) {
    (TraceId::from(TRACE), SpanId::from(parent))
}

/// A message that a source took.
fn order(parent: u64) -> Message {
    let generation = Generation::first(Origin::new("orders", "test", 1, Capabilities::unknown()).into());
    let mut message = Message::builder("")
        .id(format!("order-{parent}"))
        .header("traceparent", format!("00-{TRACE:032x}-{parent:016x}-01"))
        .header("tracestate", "rojo=1")
        .build();
    message.deliver(&generation, 1, false)
}

async fn handle(layer: TraceLayer, message: Message) -> Result<Outcome, BoxError> {
    layer.layer(service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack))).oneshot(message).await
}

#[tokio::test]
async fn a_span_links_to_its_sender_and_begins_a_trace() {
    let (exporter, _guard) = exporting();
    handle(TraceLayer::new(), order(PARENT)).await.expect("handled");
    let span = named(&exporter, "process orders");
    assert_eq!((span.span_kind.clone(), span.status.clone()), (SpanKind::Consumer, Status::Unset));
    assert_ne!(span.span_context.trace_id(), TraceId::from(TRACE));
    assert_eq!((span.parent_span_id, links(&span)), (SpanId::INVALID, vec![sender(PARENT)]));
    assert!(span.links.iter().all(|link| link.span_context.is_remote() && link.span_context.is_sampled()));
    assert_eq!(span.links[0].span_context.trace_state().header(), "rojo=1");
}

#[tokio::test]
async fn a_span_in_another_one_stays_in_its_trace() {
    let (exporter, _guard) = exporting();
    let around = tracing::info_span!("around");
    let mut service = TraceLayer::new().layer(service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack)));
    around.in_scope(|| service.call(order(PARENT))).await.expect("handled");
    drop(around);
    let (span, around) = (named(&exporter, "process orders"), named(&exporter, "around"));
    assert_eq!(span.span_context.trace_id(), around.span_context.trace_id());
    assert_eq!((span.parent_span_id, links(&span)), (around.span_context.span_id(), vec![sender(PARENT)]));
}

#[tokio::test]
async fn it_is_the_child_of_its_sender_if_that_is_asked_for() {
    let (exporter, _guard) = exporting();
    handle(TraceLayer::new().continue_trace(), order(PARENT)).await.expect("handled");
    let span = named(&exporter, "process orders");
    assert_eq!(span.span_context.trace_id(), TraceId::from(TRACE));
    assert_eq!((span.parent_span_id, links(&span)), (SpanId::from(PARENT), vec![sender(PARENT)]));
}

#[tokio::test]
async fn a_child_of_its_sender_links_to_what_it_was_torn_out_of() {
    let (exporter, _guard) = exporting();
    let around = tracing::info_span!("around");
    let service = service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::Ack));
    let mut service = TraceLayer::new().continue_trace().layer(service);
    around.in_scope(|| service.call(order(PARENT))).await.expect("handled");
    drop(around);
    let (span, around) = (named(&exporter, "process orders"), named(&exporter, "around"));
    assert_eq!(
        (span.parent_span_id, links(&span)),
        (SpanId::from(PARENT), vec![ids(&around), sender(PARENT)])
    );
}

#[tokio::test]
async fn a_malformed_context_begins_a_trace() {
    for layer in [TraceLayer::new(), TraceLayer::new().continue_trace()] {
        let (exporter, _guard) = exporting();
        let message = Message::builder("").header("traceparent", "00-0-0-0").build();
        handle(layer, message).await.expect("handled");
        let span = named(&exporter, "process");
        assert_eq!((span.parent_span_id, links(&span)), (SpanId::INVALID, vec![]));
        assert!(span.span_context.is_valid());
    }
}

#[tokio::test]
async fn a_batch_links_to_the_senders_of_all_its_members() {
    let (exporter, _guard) = exporting();
    let service = service_fn(async |_: Batch<Message>| Ok::<_, BoxError>(Outcomes::All(Outcome::Ack)));
    let members = vec![order(1), Message::new("without a context"), order(3)];
    // Also if it is asked to be a child: of whom?
    TraceLayer::new().continue_trace().layer(service).oneshot(members.into()).await.expect("handled");
    let span = named(&exporter, "process");
    assert_eq!((span.parent_span_id, links(&span)), (SpanId::INVALID, vec![sender(1), sender(3)]));
    let attributes =
        |n: usize| span.links[n].attributes.iter().map(|a| (a.key.to_string(), a.value.to_string()));
    let expected = [("messaging.message.id", "order-3"), ("messaging.message.body.size", "0")];
    assert!(attributes(1).eq(expected.map(|(key, value)| (key.to_owned(), value.to_owned()))));
}

#[tokio::test]
async fn what_fails_has_an_error_as_its_status() {
    let (exporter, _guard) = exporting();
    let service = service_fn(async |_: Message| Ok::<_, BoxError>(Outcome::reject("no tea")));
    TraceLayer::new().layer(service).oneshot(Message::new("")).await.expect("handled");
    assert_eq!(named(&exporter, "process").status, Status::error("no tea"));
}

/// Publishes through the layer, and gives back what went out.
async fn published(publication: Publication) -> Publication {
    published_at(Level::INFO, publication).await
}

async fn published_at(level: Level, publication: Publication) -> Publication {
    let (out, mut went) = tokio::sync::mpsc::unbounded_channel();
    let publisher = service_fn(move |publication: Publication| {
        let sent = out.send(publication);
        async move { sent.map(|()| Receipt::new()).map_err(BoxError::from) }
    });
    let layer = TraceLayer::publisher().destination("bills").level(level);
    layer.layer(publisher).oneshot(publication).await.expect("published");
    went.recv().await.expect("it went out")
}

/// The context that it goes out with.
fn context(publication: &Publication) -> Option<TraceContext> {
    let set =
        |name| publication.headers.iter().rev().find(|(header, _)| header == name).map(|(_, value)| value);
    Some(TraceContext::read(set("traceparent")?, set("tracestate")).expect("well formed"))
}

#[tokio::test]
async fn a_publication_goes_out_with_the_context_of_its_span() {
    let (exporter, _guard) = exporting();
    let out = published(Publication::new(Message::new(""))).await;
    let span = named(&exporter, "publish bills");
    assert_eq!((span.span_kind.clone(), links(&span)), (SpanKind::Producer, vec![]));
    let context = context(&out).expect("a context");
    assert_eq!((context.trace_id(), context.parent_id()), (ids(&span).0.to_bytes(), ids(&span).1.to_bytes()));
    assert!(context.is_sampled());
}

#[tokio::test]
async fn a_context_that_was_given_to_a_publication_is_kept_and_linked_to() {
    let header = format!("00-{TRACE:032x}-{PARENT:016x}-01");
    let in_message = Publication::new(Message::builder("").header("traceparent", header.clone()).build());
    let beside = Publication::new(order(7)).header("traceparent", header.clone());
    for (publication, headers) in [(in_message, 0), (beside, 1)] {
        let (exporter, _guard) = exporting();
        let out = published(publication).await;
        assert_eq!(out.headers.len(), headers);
        let span = named(&exporter, "publish bills");
        assert_eq!(links(&span), [sender(PARENT)]);
    }
}

#[tokio::test]
async fn a_message_that_is_forwarded_goes_out_with_the_context_of_the_span_that_forwards_it() {
    let (exporter, _guard) = exporting();
    let out = published(Publication::new(order(PARENT))).await;
    let span = named(&exporter, "publish bills");
    assert_eq!(links(&span), [sender(PARENT)]);
    let context = context(&out).expect("a context");
    assert_eq!(context.parent_id(), ids(&span).1.to_bytes());
    let state = out.headers.iter().find(|(name, _)| name == "tracestate").map(|(_, value)| value.as_str());
    assert_eq!(state, Some(Some("")), "the state of the sender's trace is not of this one");
}

#[tokio::test]
async fn a_publication_without_a_span_goes_out_with_the_context_around() {
    let (exporter, _guard) = exporting();
    let around = tracing::info_span!("around");
    let publish = published_at(Level::TRACE, Publication::new(Message::new("")));
    let out = tracing::Instrument::instrument(publish, around).await;
    let context = context(&out).expect("a context");
    assert_eq!(context.parent_id(), ids(&named(&exporter, "around")).1.to_bytes());
}

#[tokio::test]
async fn without_the_layer_of_opentelemetry_nothing_is_added() {
    let _guard = tracing::subscriber::set_default(Registry::default());
    let publication = published(Publication::new(Message::new(""))).await;
    assert!(publication.headers.is_empty());
    handle(TraceLayer::new().continue_trace(), order(PARENT)).await.expect("handled");
}

#[tokio::test]
async fn what_a_handler_publishes_is_in_the_trace_of_its_message() {
    let (exporter, _guard) = exporting();
    let service = service_fn(async |_: Message| {
        published(Publication::new(Message::new(""))).await;
        Ok::<_, BoxError>(Outcome::Ack)
    });
    TraceLayer::new().continue_trace().layer(service).oneshot(order(PARENT)).await.expect("handled");
    let (handled, sent) = (named(&exporter, "process orders"), named(&exporter, "publish bills"));
    assert_eq!((sent.parent_span_id, ids(&sent).0), (ids(&handled).1, TraceId::from(TRACE)));
}
