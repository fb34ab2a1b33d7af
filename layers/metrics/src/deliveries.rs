//! Deliveries, from taken to settled.

use std::{num::NonZeroU64, sync::OnceLock, time::Duration};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use parking_lot::Mutex;
use tower_mq_delivery::{Decided, Origin, Outcome};

use crate::{
    convention::{CONSUMED_MESSAGES, OPERATION_NAME, RECEIVE},
    destinations::Destination,
    keys::Keys,
    own::{DELIVERY_DURATION, LARGEST_KEY_SHARE, OUTCOME, WINDOW_IN_USE, WINDOW_SIZE},
};

/// The hash of a key; `None`: the message has none.
type Key = Option<NonZeroU64>;

/// How the response of a delivery ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Ack,
    Release,
    Retry,
    Reject,
    Mixed,
    Error,
    Dropped,
}

impl Ending {
    const ALL: usize = 7;

    const fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Release => "release",
            Self::Retry => "retry",
            Self::Reject => "reject",
            Self::Mixed => "mixed",
            Self::Error => "error",
            Self::Dropped => "dropped",
        }
    }

    pub(crate) fn of<T: Decided, E>(answer: &Result<T, E>) -> Self {
        match answer.as_ref().map(Decided::decided) {
            Ok(Some(Outcome::Ack)) => Self::Ack,
            Ok(Some(Outcome::Release)) => Self::Release,
            Ok(Some(Outcome::Retry { .. })) => Self::Retry,
            Ok(Some(Outcome::Reject { .. })) => Self::Reject,
            Ok(_) => Self::Mixed,
            Err(_) => Self::Error,
        }
    }
}

/// What is measured of a source's deliveries.
#[derive(Default)]
pub(crate) struct Deliveries {
    handles: OnceLock<Handles>,
    durations: [OnceLock<Histogram>; Ending::ALL],
    keys: Mutex<Keys>,
}

struct Handles {
    consumed: Counter,
    in_use: Gauge,
    largest_share: Gauge,
}

impl Handles {
    fn new(destination: &Destination) -> Self {
        Self {
            consumed: counter!(CONSUMED_MESSAGES, destination.labels_with(OPERATION_NAME, RECEIVE)),
            in_use: gauge!(WINDOW_IN_USE, destination.labels()),
            largest_share: gauge!(LARGEST_KEY_SHARE, destination.labels()),
        }
    }
}

impl Destination {
    /// A source without a limit has no size to show.
    pub(crate) fn show_window(&self, origin: &Origin) {
        if origin.window() < usize::MAX {
            gauge!(WINDOW_SIZE, self.labels()).set(origin.window() as f64);
        }
    }

    #[inline]
    fn handles(&self) -> &Handles {
        self.deliveries.handles.get_or_init(|| Handles::new(self))
    }

    /// Messages with these keys are taken.
    #[inline]
    pub(crate) fn taken(&self, first: Key, rest: &[Key]) {
        self.handles().consumed.increment(1 + rest.len() as u64);
        self.count(first, rest, Keys::take);
    }

    /// Messages with these keys are settled, or given back.
    #[inline]
    pub(crate) fn settled(&self, first: Key, rest: &[Key], after: Duration, ending: Ending) {
        self.count(first, rest, Keys::give_back);
        let duration = self.deliveries.durations[ending as usize]
            .get_or_init(|| histogram!(DELIVERY_DURATION, self.labels_with(OUTCOME, ending.name())));
        duration.record(after);
    }

    // Told under the lock, so that the last one told is the last one.
    #[inline]
    fn count(&self, first: Key, rest: &[Key], count: impl Fn(&mut Keys, Key)) {
        let handles = self.handles();
        let mut keys = self.deliveries.keys.lock();
        count(&mut keys, first);
        rest.iter().for_each(|key| count(&mut keys, *key));
        handles.in_use.set(keys.all() as f64);
        handles.largest_share.set(keys.largest_share());
    }
}
