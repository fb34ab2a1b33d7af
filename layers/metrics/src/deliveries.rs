//! Deliveries, from taken to settled.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower_mq_delivery::{Decided, Message, Origin, Outcome};

use crate::{
    convention::{CONSUMED_MESSAGES, OPERATION_NAME, RECEIVE},
    destinations::Destination,
    keys::{self, Keys},
    own::{DELIVERY_DURATION, LARGEST_KEY_SHARE, OUTCOME, WINDOW_IN_USE, WINDOW_SIZE},
};

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
}

/// What was taken, until it is settled or dropped.
pub(crate) struct Taken {
    destination: Arc<Destination>,
    since: Instant,
    first: Option<u64>,
    /// The keys of a batch after its first message.
    rest: Box<[Option<u64>]>,
}

impl Taken {
    #[inline]
    pub(crate) fn new(destination: Arc<Destination>, first: &Message, rest: &[Message]) -> Self {
        let this = Self {
            since: Instant::now(),
            first: keys::hash(first),
            rest: if rest.is_empty() { Box::default() } else { rest.iter().map(keys::hash).collect() },
            destination,
        };
        let handles = this.destination.handles();
        handles.consumed.increment(this.len() as u64);
        handles.in_use.increment(this.len() as f64);
        this.count(handles, Keys::take);
        this
    }

    fn len(&self) -> usize {
        1 + self.rest.len()
    }

    // The share is told under the lock, so that the last one told is the last one.
    #[inline]
    fn count(&self, handles: &Handles, count: fn(&mut Keys, Option<u64>)) {
        let mut keys = self.destination.deliveries.keys.lock();
        count(&mut keys, self.first);
        self.rest.iter().for_each(|key| count(&mut keys, *key));
        handles.largest_share.set(keys.largest_share());
    }

    #[inline]
    pub(crate) fn end(self, ending: Ending) {
        let destination = &*self.destination;
        let handles = destination.handles();
        handles.in_use.decrement(self.len() as f64);
        self.count(handles, Keys::give_back);
        let duration = destination.deliveries.durations[ending as usize]
            .get_or_init(|| histogram!(DELIVERY_DURATION, destination.labels_with(OUTCOME, ending.name())));
        duration.record(self.since.elapsed());
    }
}
