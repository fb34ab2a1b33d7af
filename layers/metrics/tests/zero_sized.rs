//! A recorder may have no size, as the one has that `metrics` hands out where there is none.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tower::{Layer, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message};
use tower_mq_metrics::MetricsLayer;

static NAMES: parking_lot::Mutex<Vec<String>> = parking_lot::Mutex::new(Vec::new());

struct Listens;

impl Recorder for Listens {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        NAMES.lock().push(key.name().to_owned());
        Histogram::noop()
    }
}

#[tokio::test]
async fn a_recorder_without_a_size_is_heard() {
    let service = MetricsLayer::process().layer(service_fn(async |_: Message| Ok::<_, BoxError>(())));
    service.clone().oneshot(Message::new("two teas")).await.expect("handled");
    assert!(NAMES.lock().is_empty());
    assert!(metrics::set_global_recorder(Listens).is_ok());
    service.oneshot(Message::new("two teas")).await.expect("handled");
    assert_eq!(*NAMES.lock(), ["messaging.process.duration"]);
}
