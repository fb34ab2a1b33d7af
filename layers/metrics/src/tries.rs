//! Tries of a handler.

use std::{sync::OnceLock, time::Duration};

use metrics::{Histogram, histogram};
use parking_lot::Mutex;

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
    pub(crate) fn tried(&self, took: Duration, verdict: Verdict) {
        match verdict {
            Verdict::Good => self.tries.good.get_or_init(|| self.duration(None)).record(took),
            Verdict::Failed(error) => self.failed(took, error),
            Verdict::Named(name) => self.failed_as(took, name),
        }
    }

    fn failed(&self, took: Duration, error: ErrorType) {
        let duration = &self.tries.failed[error as usize];
        duration.get_or_init(|| self.duration(Some(error.name()))).record(took);
    }

    #[cold]
    fn failed_as(&self, took: Duration, name: &'static str) {
        let mut named = self.tries.named.lock();
        let place = named.iter().position(|(there, _)| *there == name);
        let full = named.len() >= NAMED;
        match place {
            Some(place) => named[place].1.record(took),
            None if full => {
                drop(named);
                self.failed(took, ErrorType::Other);
            }
            None => {
                let duration = self.duration(Some(name));
                duration.record(took);
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
