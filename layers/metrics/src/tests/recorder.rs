//! A recorder that can be looked at without being emptied.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use parking_lot::Mutex;

#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Seen>);

#[derive(Default)]
struct Seen {
    registered: AtomicUsize,
    described: Mutex<BTreeMap<String, (usize, Option<Unit>)>>,
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    histograms: Mutex<BTreeMap<String, Arc<Values>>>,
}

#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().push(value);
    }
}

/// `name{label=value,...}`, without the labels of the source that most tests use.
fn series(key: &Key) -> String {
    let usual = |label: &&metrics::Label| {
        let of = (label.key(), label.value());
        of != ("messaging.system", "test") && of != ("messaging.destination.name", "orders")
    };
    let labels: Vec<_> =
        key.labels().filter(usual).map(|label| format!("{}={}", label.key(), label.value())).collect();
    if labels.is_empty() { key.name().to_owned() } else { format!("{}{{{}}}", key.name(), labels.join(",")) }
}

impl Recorder {
    pub(crate) fn counter(&self, series: &str) -> u64 {
        self.0.counters.lock().get(series).map_or(0, |value| value.load(Ordering::SeqCst))
    }

    /// `None`: there is no such gauge.
    pub(crate) fn gauge(&self, series: &str) -> Option<f64> {
        self.0.gauges.lock().get(series).map(|value| f64::from_bits(value.load(Ordering::SeqCst)))
    }

    pub(crate) fn histogram(&self, series: &str) -> Vec<f64> {
        self.0.histograms.lock().get(series).map_or_else(Vec::new, |values| values.0.lock().clone())
    }

    /// All series.
    pub(crate) fn series(&self) -> Vec<String> {
        let mut all: Vec<_> = self.0.counters.lock().keys().cloned().collect();
        all.extend(self.0.gauges.lock().keys().cloned());
        all.extend(self.0.histograms.lock().keys().cloned());
        all
    }

    /// The counters that are not zero, with their values.
    pub(crate) fn counted(&self) -> Vec<(String, u64)> {
        let counters = self.0.counters.lock();
        let counted = counters.iter().map(|(name, value)| (name.clone(), value.load(Ordering::SeqCst)));
        counted.filter(|(_, value)| *value > 0).collect()
    }

    /// How often a handle was asked for.
    pub(crate) fn registered(&self) -> usize {
        self.0.registered.load(Ordering::SeqCst)
    }

    /// By name: how often it was described, and its unit.
    pub(crate) fn described(&self) -> BTreeMap<String, (usize, Option<Unit>)> {
        self.0.described.lock().clone()
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>) {
        let mut described = self.0.described.lock();
        let entry = described.entry(name.as_str().to_owned()).or_default();
        *entry = (entry.0 + 1, unit);
    }

    fn register<T: Default>(&self, all: &Mutex<BTreeMap<String, Arc<T>>>, key: &Key) -> Arc<T> {
        self.0.registered.fetch_add(1, Ordering::SeqCst);
        all.lock().entry(series(key)).or_default().clone()
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(&self.0.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(&self.0.gauges, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register(&self.0.histograms, key))
    }
}
