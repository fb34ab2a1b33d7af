//! A recorder that does what any must do, and allocates nothing after its handles are made.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_global_recorder,
};

struct Cells;

pub(crate) fn install() {
    set_global_recorder(Cells).expect("there is no other");
}

/// Sum and buckets, as the exporters of histograms keep them.
#[derive(Default)]
struct Buckets {
    sum: AtomicU64,
    counts: [AtomicU64; 16],
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let micros = (value * 1e6) as u64;
        let bucket = (64 - micros.leading_zeros()) as usize / 2;
        self.counts[bucket.min(15)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Recorder for Cells {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Buckets::default()))
    }
}
