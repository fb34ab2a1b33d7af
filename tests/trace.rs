//! A delivery's span goes with it, through every kind of partition, and its trace from publisher to consumer.

#[path = "../layers/trace/tests/record/mod.rs"]
mod record;

use std::{collections::BTreeSet, time::Duration};

use record::record;
use tower::ServiceBuilder;
use tower_mq::{
    BoxError, Bytes, Delivery, Message, MetricsLayer, PartitionLayer, SettleLayer, TraceLayer, handler,
    serve, source::memory::Broker,
};

const DELIVERIES: usize = 60;

fn modes() -> [(&'static str, PartitionLayer<Delivery>); 6] {
    [
        ("by_key", PartitionLayer::by_key(4)),
        ("by_key, inline", PartitionLayer::by_key(4).inline()),
        ("per_key", PartitionLayer::per_key(4)),
        ("per_key, inline", PartitionLayer::per_key(4).inline()),
        ("unordered", PartitionLayer::unordered(4)),
        ("unordered, inline", PartitionLayer::unordered(4).inline()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_handler_runs_in_the_span_of_its_own_delivery_whatever_carries_it_there() {
    for (mode, partition) in modes() {
        let (heard, _guard) = record();
        let broker = Broker::new();
        for n in 0..DELIVERIES {
            let message = Message::builder(n.to_string()).id(n.to_string()).key(format!("{}", n % 7));
            broker.publish("orders", message.build()).expect("stored");
        }
        let stack = ServiceBuilder::new()
            .layer(MetricsLayer::delivery())
            .layer(TraceLayer::new())
            .layer(partition)
            .layer(SettleLayer::new())
            .service(handler(async |text: Bytes| {
                let text = String::from_utf8_lossy(&text).into_owned();
                // Others run in between.
                tokio::time::sleep(Duration::from_millis(1)).await;
                tracing::info!(handled = text);
                Ok::<_, BoxError>(())
            }));
        let orders = broker.queue("orders").window(16).consume();
        serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await.expect("served");

        let spans = heard.spans();
        let spans: Vec<_> = spans.iter().filter(|span| span.name == "process").collect();
        assert_eq!(spans.len(), DELIVERIES, "{mode}");
        let mut handled = BTreeSet::new();
        for (span, text) in heard.events() {
            // Ids of spans come again when they are closed, so one span of this id must be the right one.
            let own =
                spans.iter().any(|s| Some(s.id) == span && s.field("messaging.message.id") == Some(&*text));
            if text.parse::<usize>().is_ok() {
                assert!(own, "{mode}: delivery {text} was handled in span {span:?}");
                handled.insert(text);
            }
        }
        assert_eq!(handled.len(), DELIVERIES, "{mode}");
        for span in spans {
            let ended = span.closed && span.entered == span.exited;
            assert!(ended && span.field("tower_mq.outcome") == Some("ack"), "{mode}: {span:?}");
        }
    }
}

#[cfg(feature = "opentelemetry")]
mod opentelemetry {
    use ::opentelemetry::trace::TracerProvider as _;
    use futures_util::TryFutureExt;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
    use tower::{Layer, ServiceExt};
    use tower_mq::Publication;
    use tracing::subscriber::DefaultGuard;
    use tracing_subscriber::{Registry, filter::LevelFilter, layer::SubscriberExt};

    use super::*;

    fn exporting() -> (InMemorySpanExporter, DefaultGuard) {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = Registry::default().with(LevelFilter::INFO).with(layer);
        (exporter, tracing::subscriber::set_default(subscriber))
    }

    fn named(exporter: &InMemorySpanExporter, name: &str) -> SpanData {
        let spans = exporter.get_finished_spans().expect("kept in memory");
        spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}: {spans:#?}")).clone()
    }

    /// Publishes an order, whose handler publishes a bill, which is handled too.
    async fn round_trip(trace: TraceLayer) -> (InMemorySpanExporter, DefaultGuard) {
        let exporting = exporting();
        let broker = Broker::new();
        let publisher = |queue: &'static str| {
            TraceLayer::publisher().system("memory").destination(queue).layer(broker.publisher().to(queue))
        };
        let order = Publication::new(Message::builder("two teas").key("table-7").build());
        publisher("orders").oneshot(order).await.expect("stored");

        let bills = publisher("bills");
        let stack = ServiceBuilder::new()
            .layer(trace.clone())
            .layer(PartitionLayer::by_key(4))
            .layer(SettleLayer::new())
            .service(handler(move || {
                let bill = Publication::new(Message::new("the bill"));
                bills.clone().oneshot(bill).map_ok(drop)
            }));
        let orders = broker.queue("orders").consume();
        serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await.expect("served");

        let stack =
            ServiceBuilder::new().layer(trace).layer(SettleLayer::new()).service(handler(async || ()));
        let bills = broker.queue("bills").consume();
        serve(bills, stack).with_graceful_shutdown(broker.drained("bills")).await.expect("served");
        exporting
    }

    const STEPS: [&str; 4] = ["publish orders", "process orders", "publish bills", "process bills"];

    #[tokio::test(start_paused = true)]
    async fn a_round_trip_is_one_trace_if_consumers_continue_it() {
        let (exporter, _guard) = round_trip(TraceLayer::new().continue_trace()).await;
        let steps = STEPS.map(|name| named(&exporter, name));
        for (before, step) in steps.iter().zip(&steps[1..]) {
            assert_eq!(step.span_context.trace_id(), before.span_context.trace_id(), "{}", step.name);
            assert_eq!(step.parent_span_id, before.span_context.span_id(), "{}", step.name);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_trip_is_one_chain_of_links_if_they_do_not() {
        let (exporter, _guard) = round_trip(TraceLayer::new()).await;
        let [order, handled, bill, paid] = STEPS.map(|name| named(&exporter, name));
        let traces = [&order, &handled, &paid].map(|span| span.span_context.trace_id());
        assert_eq!(BTreeSet::from(traces.map(|trace| trace.to_bytes())).len(), 3);
        assert_eq!(bill.parent_span_id, handled.span_context.span_id());
        for (sent, taken) in [(order, handled), (bill, paid)] {
            let links: Vec<_> = taken.links.iter().map(|link| link.span_context.span_id()).collect();
            assert_eq!(links, [sent.span_context.span_id()], "{}", taken.name);
        }
    }
}
