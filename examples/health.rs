//! Tells an orchestrator and Prometheus how a consumer is doing: `cargo run --example health`, and then
//!
//! ```text
//! curl -i localhost:9300/live      is there any use in this process? otherwise start it anew
//! curl -i localhost:9300/ready     does it take messages now?
//! curl localhost:9300/metrics      what it measures, for Prometheus; grafana.json beside this file shows it
//! ```
//!
//! A consumer that has lost its broker comes back by itself. Killing it meanwhile would help nobody, so it is live and
//! not ready. It is not live when its source has ended for good: a wrong password, a queue that is gone.
//!
//! End it with ctrl-c. `cargo test --example health` runs its tests.

use std::{env, time::Duration};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use tokio::{net::TcpListener, time};
use tower::{ServiceBuilder, timeout::TimeoutLayer};
use tower_mq::{
    BoxError, Key, Message, MetricsLayer, PartitionLayer, SettleLayer, handler,
    metrics::{convention, own},
    serve,
    source::{Source, memory},
};

/// The recorder: Prometheus' own names (`_total`, `_seconds`), and histograms with the buckets that the conventions
/// advise. Without buckets it would make summaries, which cannot be added up over several processes.
pub(crate) fn prometheus() -> Result<PrometheusBuilder, BuildError> {
    let full = |name: &str| Matcher::Full(name.into());
    PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(full(convention::PROCESS_DURATION), &convention::DURATION_BUCKETS)?
        .set_buckets_for_metric(full(own::DELIVERY_DURATION), &convention::DURATION_BUCKETS)?
        .set_buckets_for_metric(full(own::BATCH_SIZE), &own::BATCH_BUCKETS)
}

mod endpoint {
    use axum::{Router, extract::State, http::StatusCode, routing::get};
    use metrics_exporter_prometheus::PrometheusHandle;
    use tower_mq::source::{self, Handle};

    /// What the endpoint looks at.
    #[derive(Clone)]
    struct Watched {
        source: Handle,
        prometheus: PrometheusHandle,
    }

    pub(super) fn routes(source: Handle, prometheus: PrometheusHandle) -> Router {
        Router::new()
            .route("/live", get(live))
            .route("/ready", get(ready))
            .route("/metrics", get(async |State(watched): State<Watched>| watched.prometheus.render()))
            .with_state(Watched { source, prometheus })
    }

    /// No, if the source has ended and nobody asked it to.
    async fn live(State(Watched { source, .. }): State<Watched>) -> (StatusCode, String) {
        let dead = matches!(source.health().state, source::State::Closed { error: Some(_) });
        (code(!dead), tell(&source))
    }

    /// Yes, if it takes messages.
    async fn ready(State(Watched { source, .. }): State<Watched>) -> (StatusCode, String) {
        let connected = matches!(source.health().state, source::State::Connected { .. });
        (code(connected && !source.is_paused()), tell(&source))
    }

    fn code(good: bool) -> StatusCode {
        if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    }

    /// For people who look. Errors of a source name the host and the queue, and no password.
    fn tell(source: &Handle) -> String {
        let health = source.health();
        let state = match health.state {
            source::State::Connecting => "connecting".into(),
            source::State::Connected { .. } if source.is_paused() => "paused".into(),
            source::State::Connected { generation, .. } => format!("connected, connection {generation}"),
            source::State::Reconnecting { since, attempt, error } => {
                let seconds = since.elapsed().as_secs();
                format!("not connected for {seconds} s, attempt {attempt}: {error}")
            }
            source::State::Closed { error: Some(error) } => format!("ended: {error}"),
            source::State::Closed { error: None } => "closed".into(),
            _ => "unknown".into(),
        };
        let warnings = health.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        format!("{}: {state}\n{}", source.origin().name(), warnings.collect::<String>())
    }
}

async fn book(Key(table): Key, order: String) -> Result<(), BoxError> {
    time::sleep(Duration::from_millis(20)).await;
    if order.is_empty() {
        return Err(format!("{table:?} orders nothing").into());
    }
    Ok(())
}

/// Somebody orders all the time.
async fn order(broker: memory::Broker) -> Result<(), BoxError> {
    for number in 0_usize.. {
        let text = if number % 50 == 0 { "" } else { "two teas" };
        broker.publish("orders", Message::builder(text).key(format!("table-{}", number % 9)).build())?;
        time::sleep(Duration::from_millis(15)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Before the first delivery: handles are kept.
    let prometheus = prometheus()?.install_recorder()?;

    let broker = memory::Broker::new();
    let orders = broker.queue("orders").window(64).dead_letters("orders.dead").consume();
    let source = orders.handle();
    tokio::spawn(order(broker));

    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9300".into());
    let listener = TcpListener::bind(address).await?;
    println!("http://{0}/live http://{0}/ready http://{0}/metrics", listener.local_addr()?);
    let endpoint = axum::serve(listener, endpoint::routes(source, prometheus.clone()));
    // It answers until the process ends, so that the end is seen, too.
    tokio::spawn(endpoint.into_future());
    // What is recorded is folded into the buckets here, or when Prometheus asks.
    tokio::spawn(async move {
        let mut upkeep = time::interval(Duration::from_secs(5));
        loop {
            upkeep.tick().await;
            prometheus.run_upkeep();
        }
    });

    let metrics = MetricsLayer::delivery();
    let observer = metrics.observer();
    let stack = ServiceBuilder::new()
        .layer(metrics)
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .layer(MetricsLayer::process())
        .service(handler(book));

    // The layer would hear of the source from the first delivery on; the observer does so from now on.
    let serving = serve(orders, stack).observer(observer).with_graceful_shutdown(tokio::signal::ctrl_c());
    println!("{}", tokio::spawn(serving).await??);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{Router, body::Body, http::Request};
    use tower::ServiceExt;
    use tower_mq::{Capabilities, Drain, Origin, SharedError, source::Control};

    use super::*;

    /// A source whose state is set by hand, and its endpoint.
    fn watched() -> (Control, Router) {
        let control = Control::new(Arc::new(Origin::new("orders", "test", 8, Capabilities::unknown())));
        let routes =
            endpoint::routes(control.handle(), prometheus().expect("buckets").build_recorder().handle());
        (control, routes)
    }

    async fn get(routes: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = routes.clone().oneshot(request).await.expect("infallible");
        let code = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        (code, String::from_utf8(body.to_vec()).expect("text"))
    }

    /// The codes of `/live` and `/ready`, and what they say.
    async fn asked(routes: &Router) -> (u16, u16, String) {
        let ((live, said), (ready, same)) = (get(routes, "/live").await, get(routes, "/ready").await);
        assert_eq!(said, same);
        (live, ready, said)
    }

    fn down() -> SharedError {
        SharedError::from(BoxError::from("no route to the broker"))
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_live_while_it_reconnects_and_ready_while_it_takes() {
        let (control, routes) = watched();
        assert_eq!(asked(&routes).await, (200, 503, "orders: connecting\n".into()));
        control.connected(1);
        assert_eq!(asked(&routes).await, (200, 200, "orders: connected, connection 1\n".into()));
        let since = time::Instant::now();
        time::advance(Duration::from_secs(3)).await;
        control.reconnecting(since, 2, down());
        let said = "orders: not connected for 3 s, attempt 2: no route to the broker\n";
        assert_eq!(asked(&routes).await, (200, 503, said.into()));
        control.connected(2);
        assert_eq!(asked(&routes).await, (200, 200, "orders: connected, connection 2\n".into()));
    }

    #[tokio::test]
    async fn it_is_live_and_not_ready_while_it_is_paused() {
        let (control, routes) = watched();
        control.connected(1);
        control.handle().pause();
        assert_eq!(asked(&routes).await, (200, 503, "orders: paused\n".into()));
        control.handle().resume();
        assert_eq!(asked(&routes).await.1, 200);
    }

    #[tokio::test]
    async fn it_is_live_after_an_end_that_was_asked_for_and_not_after_another() {
        let (control, routes) = watched();
        control.handle().close(Drain::Finish);
        control.closed(None);
        assert_eq!(asked(&routes).await, (200, 503, "orders: closed\n".into()));
        let (control, routes) = watched();
        control.closed(Some(down()));
        assert_eq!(asked(&routes).await, (503, 503, "orders: ended: no route to the broker\n".into()));
    }

    #[tokio::test]
    async fn warnings_are_told() {
        let (control, routes) = watched();
        control.origin().warn("the window is smaller than a batch");
        let said = "orders: connecting\nwarning: the window is smaller than a batch\n";
        assert_eq!(asked(&routes).await, (200, 503, said.into()));
    }

    #[test]
    fn the_scrape_has_what_a_stack_measures() {
        let recorder = prometheus().expect("buckets").build_recorder();
        let scraped = recorder.handle();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (_, scrape) = metrics::with_local_recorder(&recorder, || {
            runtime.block_on(async {
                let (control, _) = watched();
                let broker = memory::Broker::new();
                let orders = broker.queue("orders").consume();
                broker
                    .publish("orders", Message::builder("two teas").key("table-7").build())
                    .expect("published");
                let stack = ServiceBuilder::new()
                    .layer(MetricsLayer::delivery())
                    .layer(SettleLayer::new())
                    .layer(MetricsLayer::process())
                    .service(handler(book));
                serve(orders, stack).with_graceful_shutdown(broker.drained("orders")).await.expect("served");
                get(&endpoint::routes(control.handle(), scraped), "/metrics").await
            })
        });
        let labels = r#"messaging_system="memory",messaging_destination_name="orders""#;
        for line in [
            format!(
                r#"messaging_client_consumed_messages_total{{{labels},messaging_operation_name="receive"}} 1"#
            ),
            format!(
                r#"messaging_process_duration_seconds_bucket{{{labels},messaging_operation_name="process",le="10"}} 1"#
            ),
            format!(r#"tower_mq_delivery_duration_seconds_count{{{labels},tower_mq_outcome="ack"}} 1"#),
            format!("tower_mq_window_in_use{{{labels}}} 0"),
        ] {
            assert!(scrape.contains(&line), "{line}\n{scrape}");
        }
    }
}
