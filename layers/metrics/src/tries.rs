//! Tries of a handler.

use std::{
    sync::{Arc, OnceLock},
    thread,
};

use metrics::{Histogram, histogram};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    convention::{ERROR_TYPE, OPERATION_NAME, PROCESS, PROCESS_DURATION},
    destinations::Destination,
    error_type::{ErrorType, Verdict},
};

/// So many names of a user's own have series of their own.
pub(crate) const NAMED: usize = 32;

/// What is measured of the tries of a source's messages.
#[derive(Default)]
pub(crate) struct Tries {
    good: OnceLock<Histogram>,
    failed: [OnceLock<Histogram>; ErrorType::ALL],
    named: Mutex<Vec<(&'static str, Histogram)>>,
}

impl Destination {
    #[inline]
    fn tried(&self, since: Instant, verdict: Verdict) {
        match verdict {
            Verdict::Good => self.tries.good.get_or_init(|| self.duration(None)).record(since.elapsed()),
            Verdict::Failed(error) => self.failed(since, error),
            Verdict::Named(name) => self.failed_as(since, name),
        }
    }

    fn failed(&self, since: Instant, error: ErrorType) {
        let duration = &self.tries.failed[error as usize];
        duration.get_or_init(|| self.duration(Some(error.name()))).record(since.elapsed());
    }

    #[cold]
    fn failed_as(&self, since: Instant, name: &'static str) {
        let mut named = self.tries.named.lock();
        let place = named.iter().position(|(there, _)| *there == name);
        let full = named.len() >= NAMED;
        match place {
            Some(place) => named[place].1.record(since.elapsed()),
            None if full => {
                drop(named);
                self.failed(since, ErrorType::Other);
            }
            None => {
                let duration = self.duration(Some(name));
                duration.record(since.elapsed());
                named.push((name, duration));
            }
        }
    }

    fn duration(&self, error: Option<&'static str>) -> Histogram {
        let mut labels = self.labels_with(OPERATION_NAME, PROCESS);
        labels.extend(error.map(|error| metrics::Label::from_static_parts(ERROR_TYPE, error)));
        histogram!(PROCESS_DURATION, labels)
    }
}

/// One try, until it ends or is dropped.
pub(crate) struct Try {
    destination: Arc<Destination>,
    since: Instant,
}

impl Try {
    #[inline]
    pub(crate) fn new(destination: Arc<Destination>) -> Self {
        Self { destination, since: Instant::now() }
    }

    #[inline]
    pub(crate) fn end(self, verdict: Verdict) {
        self.destination.tried(self.since, verdict);
    }

    /// Nobody waits for its end any more: a time-out, a shutdown, or a panic.
    pub(crate) fn dropped(self) {
        let error = if thread::panicking() { ErrorType::Panic } else { ErrorType::Cancelled };
        self.end(Verdict::Failed(error));
    }
}
