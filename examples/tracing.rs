//! One trace from the one who orders to the one who bills: `cargo run --example tracing --features opentelemetry`.
//!
//! Orders are handled in two lanes; each handler publishes a bill, and one order can never be handled. Every step is a
//! span, printed here as OpenTelemetry exports it: which trace it is in, whose child it is, and how it ended. To send
//! the spans somewhere, put an exporter of your choice in the place of the printer.

use std::{collections::BTreeMap, time::Duration};

use opentelemetry::{SpanId, TraceId, trace::TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, timeout::TimeoutLayer};
use tower_mq::{
    FailureExt, Message, PartitionLayer, Publication, SettleLayer, TraceLayer, handler, serve, source::memory,
};
use tracing_subscriber::{Registry, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    Registry::default().with(LevelFilter::INFO).with(layer).try_init()?;

    let broker = memory::Broker::new();
    let orders = TraceLayer::publisher().system("memory").destination("orders");
    let orders = orders.layer(broker.publisher().to("orders"));
    let bills = TraceLayer::publisher().system("memory").destination("bills");
    let bills = bills.layer(broker.publisher().to("bills"));

    for (customer, order) in [("alice", "3"), ("bob", "a dozen")] {
        let order = Message::builder(order).key(customer).id(format!("{customer}-1")).build();
        orders.clone().oneshot(Publication::new(order)).await?;
    }

    let stack = ServiceBuilder::new()
        // By default a consumer begins a trace that links to the sender's. Here it goes on in that of the sender.
        .layer(TraceLayer::new().continue_trace())
        .layer(PartitionLayer::by_key(2))
        .layer(SettleLayer::new())
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service(handler(move |order: String| {
            let bills = bills.clone();
            async move {
                let apples: u32 = order.parse().or_reject()?;
                bills.oneshot(Publication::new(Message::new(format!("{apples} apples")))).await?;
                Ok::<_, BoxError>(())
            }
        }));
    let queue = broker.queue("orders").window(16).dead_letters("orders.dead").consume();
    let report = serve(queue, stack).with_graceful_shutdown(broker.drained("orders")).await?;

    print(&exporter.get_finished_spans()?);
    println!("{report}");
    Ok(())
}

/// Each trace as a tree.
fn print(spans: &[SpanData]) {
    let mut children: BTreeMap<[u8; 8], Vec<&SpanData>> = BTreeMap::new();
    for span in spans {
        children.entry(span.parent_span_id.to_bytes()).or_default().push(span);
    }
    for root in children.get(&SpanId::INVALID.to_bytes()).into_iter().flatten() {
        println!("trace {}", short(root.span_context.trace_id()));
        print_below(root, 1, &children);
    }
}

fn print_below(span: &SpanData, depth: usize, children: &BTreeMap<[u8; 8], Vec<&SpanData>>) {
    let field = |name| span.attributes.iter().find(|a| a.key.as_str() == name).map(|a| a.value.to_string());
    let outcome = field("tower_mq.outcome").map_or(String::new(), |outcome| format!(": {outcome}"));
    println!("{}{}{outcome}", "  ".repeat(depth), span.name);
    for child in children.get(&span.span_context.span_id().to_bytes()).into_iter().flatten() {
        print_below(child, depth + 1, children);
    }
}

fn short(trace: TraceId) -> String {
    trace.to_string().chars().take(8).collect()
}
