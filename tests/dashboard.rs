//! The dashboard in `examples/grafana.json` shows what a stack measures: each expression is PromQL, and each metric and
//! label in it is in the scrape of a stack with every layer in it.

// The recorder is set up as the example does it, so the two go together.
#[allow(dead_code)]
#[path = "../examples/health.rs"]
mod health;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use promql_parser::{
    label::Matchers,
    parser::{self, Expr, VectorSelector},
};
use serde_json::Value;
use tower::{ServiceBuilder, timeout::TimeoutLayer};
use tower_mq::{
    Backoff, Batch, BatchLayer, BoxError, BreakerLayer, DeadLetterLayer, DedupLayer, FailureExt, Message,
    MetricsLayer, PartitionLayer, RetryLayer, SettleLayer, TraceLayer, handler, serve, source::memory,
};

/// What Grafana puts in the place of its variables.
const VARIABLES: [(&str, &str); 3] =
    [("$__rate_interval", "5m"), ("$queue", ".*"), ("${datasource}", "prometheus")];

type Labels = BTreeSet<String>;

/// Panels of a dashboard, with those in rows that are folded.
fn panels(of: &Value) -> Vec<&Value> {
    let here = of["panels"].as_array().map(Vec::as_slice).unwrap_or_default();
    here.iter().flat_map(|panel| std::iter::once(panel).chain(panels(panel))).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../examples/grafana.json")).expect("JSON")
}

/// By title, what each panel asks for.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for panel in panels(dashboard).into_iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().expect("a title");
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title} asks for nothing");
        for target in targets {
            let mut expression = target["expr"].as_str().expect("an expression").to_owned();
            for (variable, value) in VARIABLES {
                expression = expression.replace(variable, value);
            }
            assert!(!expression.contains('$'), "{title}: {expression} has a variable that nobody sets");
            all.push((title.to_owned(), expression));
        }
    }
    all
}

/// Checks names and labels against the scrape, and gives the labels that the result may have.
fn check(expr: &Expr, scrape: &BTreeMap<String, Labels>) -> Result<Labels, String> {
    let within = |labels: &Labels, asked: &[String]| match asked.iter().find(|label| !labels.contains(*label))
    {
        Some(label) => Err(format!("no label `{label}` on what it is asked for")),
        None => Ok(()),
    };
    match expr {
        Expr::VectorSelector(selector) => check_selector(selector, scrape),
        Expr::MatrixSelector(matrix) => check_selector(&matrix.vs, scrape),
        Expr::Aggregate(aggregate) => {
            let labels = check(&aggregate.expr, scrape)?;
            let Some(modifier) = &aggregate.modifier else { return Ok(labels) };
            let asked = modifier.labels().labels.clone();
            within(&labels, &asked)?;
            Ok(if modifier.is_include() { asked.into_iter().collect() } else { labels })
        }
        Expr::Binary(binary) => {
            let (left, right) = (check(&binary.lhs, scrape)?, check(&binary.rhs, scrape)?);
            if let Some(matching) = binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref()) {
                within(&left, &matching.labels().labels)?;
                within(&right, &matching.labels().labels)?;
            } else if !left.is_empty() && !right.is_empty() && left != right {
                return Err(format!("{left:?} and {right:?} do not find each other"));
            }
            Ok(if left.is_empty() { right } else { left })
        }
        Expr::Call(call) => {
            let mut all = Labels::new();
            for argument in &call.args.args {
                all.extend(check(argument, scrape)?);
            }
            if call.func.name == "histogram_quantile" && !all.remove("le") {
                return Err("a quantile of what has no buckets".into());
            }
            Ok(all)
        }
        Expr::Unary(unary) => check(&unary.expr, scrape),
        Expr::Paren(paren) => check(&paren.expr, scrape),
        Expr::Subquery(subquery) => check(&subquery.expr, scrape),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(Labels::new()),
        other => Err(format!("{other:?} is not expected here")),
    }
}

fn check_selector(selector: &VectorSelector, scrape: &BTreeMap<String, Labels>) -> Result<Labels, String> {
    let name = selector.name.as_deref().ok_or("a selector without a name")?;
    let labels = scrape.get(name).ok_or_else(|| format!("`{name}` is not in the scrape"))?;
    let Matchers { matchers, or_matchers } = &selector.matchers;
    for matcher in matchers.iter().chain(or_matchers.iter().flatten()) {
        if !labels.contains(&matcher.name) {
            return Err(format!("`{name}` has no label `{}`", matcher.name));
        }
    }
    Ok(labels.clone())
}

fn check_text(expression: &str, scrape: &BTreeMap<String, Labels>) -> Result<(), String> {
    check(&parser::parse(expression)?, scrape).map(drop)
}

/// By name, the labels in a scrape.
fn read(scrape: &str) -> BTreeMap<String, Labels> {
    let mut all = BTreeMap::<String, Labels>::new();
    for line in scrape.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
        let labels =
            labels.map_or("", |(labels, _)| labels).split(',').filter_map(|label| label.split_once('='));
        all.entry(name.to_owned()).or_default().extend(labels.map(|(name, _)| name.to_owned()));
    }
    all
}

async fn eat(order: String, tries: Tries) -> Result<(), BoxError> {
    tokio::time::sleep(Duration::from_millis(3)).await;
    match &*order {
        "fail once" if tries.0 == 1 => Err("not yet".into()),
        "fail" => Err("never".into()),
        "slow" => std::future::pending().await,
        "panic" => panic!("planned"),
        "refuse" => Ok("refuse".parse::<u32>().map(drop).or_reject()?),
        _ => Ok(()),
    }
}

async fn eat_all(orders: Batch<Message>) -> Vec<Result<(), BoxError>> {
    tokio::time::sleep(Duration::from_millis(3)).await;
    let eat = |order: &Message| match &order.payload()[..] {
        b"fail" => Err("never".into()),
        b"refuse" => Ok("refuse".parse::<u32>().map(drop).or_reject()?),
        _ => Ok(()),
    };
    orders.iter().map(eat).collect()
}

/// Which try in place it is.
struct Tries(u32);

impl tower_mq::FromMessage for Tries {
    fn from_message(message: &Message) -> Result<Self, tower_mq::Rejection> {
        Ok(Self(message.tries()))
    }
}

fn publish(broker: &memory::Broker) {
    let orders = ["tea", "fail once", "fail", "slow", "panic", "refuse", "tea"];
    for number in 0..70 {
        let mut order = Message::builder(orders[number % orders.len()]).key(format!("table-{}", number % 5));
        if number % 10 > 0 {
            order = order.id(format!("order-{}", number % 60));
        }
        broker.publish("orders", order.build()).expect("stored");
    }
}

/// The canonical stack, with and without a batch layer, until its queue is empty.
async fn run() {
    let broker = memory::Broker::new();
    let metrics = MetricsLayer::delivery();
    let retry =
        || RetryLayer::in_place(Backoff::exponential(Duration::from_millis(1), Duration::from_millis(9)));
    let breaker = || BreakerLayer::new().minimum(3).pause(Duration::from_millis(1), Duration::from_millis(9));
    let queue = || broker.queue("orders").window(32);

    publish(&broker);
    let stack = ServiceBuilder::new()
        .layer(metrics.clone())
        .layer(TraceLayer::new())
        .layer(breaker())
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(DedupLayer::in_memory())
        .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead")))
        .layer(retry().attempts(2))
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .layer(MetricsLayer::process())
        .service(handler(eat));
    let report = serve(queue().consume(), stack)
        .observer(metrics.observer())
        .with_graceful_shutdown(broker.drained("orders"))
        .await
        .expect("served");
    assert!(report.counts.retried > 0 && report.counts.acked > 0, "{report}");
    assert!(broker.len("orders.dead") > 0);

    publish(&broker);
    let stack = ServiceBuilder::new()
        .layer(metrics)
        .layer(TraceLayer::new())
        .layer(breaker())
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead")))
        .layer(BatchLayer::new(3))
        .layer(retry().attempts(2))
        .layer(MetricsLayer::process())
        .service(handler(eat_all));
    serve(queue().consume(), stack).with_graceful_shutdown(broker.drained("orders")).await.expect("served");
}

/// What Prometheus would read after [`run`].
fn scrape() -> String {
    let recorder = health::prometheus().expect("buckets").build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    metrics::with_local_recorder(&recorder, || runtime.expect("a runtime").block_on(run()));
    handle.render()
}

#[test]
fn every_expression_is_promql_and_every_name_in_it_is_in_the_scrape() {
    let (dashboard, text) = (dashboard(), scrape());
    let scrape = read(&text);
    let mut wrong = Vec::new();
    for (title, expression) in expressions(&dashboard) {
        if let Err(what) = check_text(&expression, &scrape) {
            wrong.push(format!("{title}: {what}\n  {expression}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n\n{text}", wrong.join("\n"));
}

#[test]
fn a_run_that_has_ended_holds_nothing() {
    let text = scrape();
    let gauges = [
        "tower_mq_window_in_use{",
        "tower_mq_window_largest_key_share{",
        "tower_mq_lane_depth{",
        "tower_mq_parked{",
    ];
    let lines: Vec<_> =
        text.lines().filter(|line| gauges.iter().any(|gauge| line.starts_with(gauge))).collect();
    assert!(lines.len() > gauges.len(), "{text}");
    assert!(lines.iter().all(|line| line.ends_with("} 0")), "{lines:?}");
}

#[test]
fn the_choice_of_queues_is_in_the_scrape() {
    let scrape = read(&scrape());
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let queue = variables.iter().find(|variable| variable["name"] == "queue").expect("a choice of queues");
    let query = queue["query"]["query"].as_str().expect("a query");
    let asked = query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')'));
    let (name, label) = asked.and_then(|asked| asked.split_once(", ")).expect("label_values(metric, label)");
    assert!(scrape.get(name).is_some_and(|labels| labels.contains(label)), "{query}");
    assert_eq!(queue["definition"], query);
}

#[test]
fn what_is_in_the_scrape_is_on_the_dashboard() {
    let shown: String =
        expressions(&dashboard()).into_iter().map(|(_, expression)| expression + "\n").collect();
    let missing: Vec<_> = read(&scrape())
        .into_keys()
        .map(|name| {
            let stem = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end));
            stem.unwrap_or(&name).to_owned()
        })
        .filter(|name| !shown.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn panels_have_numbers_of_their_own_and_do_not_cover_each_other() {
    let dashboard = dashboard();
    let (mut numbers, mut covered) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = &panel["title"];
        assert!(numbers.insert(panel["id"].as_u64().expect("a number")), "{title}");
        let at = |side: &str| panel["gridPos"][side].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{title}");
        for place in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(covered.insert(place), "{title} covers another panel");
        }
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let scrape = read("a_total{queue=\"x\"} 1\nb_bucket{queue=\"x\",le=\"1\"} 1\n");
    let wrong = |expression| check_text(expression, &scrape).expect_err(expression);
    assert_eq!(check_text("sum by (queue) (rate(a_total{queue=~\".*\"}[5m]))", &scrape), Ok(()));
    assert_eq!(
        check_text("histogram_quantile(0.5, sum by (le, queue) (rate(b_bucket[5m])))", &scrape),
        Ok(())
    );
    assert_eq!(wrong("rate(c_total[5m])"), "`c_total` is not in the scrape");
    assert_eq!(wrong("a_total{topic=\"x\"}"), "`a_total` has no label `topic`");
    assert_eq!(wrong("sum by (topic) (a_total)"), "no label `topic` on what it is asked for");
    assert_eq!(wrong("histogram_quantile(0.5, rate(a_total[5m]))"), "a quantile of what has no buckets");
    for expression in ["rate(a_total)", "sum by (queue (a_total)", "rates(a_total[5m])", "a_total{queue=x}"] {
        wrong(expression);
    }
}
