//! Hears of what happens between layers, driver and source.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tower_mq_delivery::{Event, Message, Observer, Origin};

use crate::{
    destinations::{Destination, Destinations, Place},
    error_type::Name,
    events, installed,
};

/// Counts what layers, the driver and the source report. Given out by
/// [`MetricsLayer::observer`](crate::MetricsLayer::observer).
#[derive(Clone)]
pub struct MetricsObserver(pub(crate) Arc<Shared>);

impl Observer for MetricsObserver {
    fn event(&self, origin: &Origin, event: &Event<'_>) {
        self.0.event(origin, event);
    }

    /// The same for all clones, and for the layer, which adds itself where it is missing.
    fn shared(self) -> Arc<dyn Observer> {
        self.0
    }
}

impl fmt::Debug for MetricsObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsObserver")
    }
}

/// What all clones of a layer and all their services share.
pub(crate) struct Shared {
    /// There is a recorder.
    records: AtomicBool,
    destinations: Destinations,
}

impl Shared {
    pub(crate) fn new(place: Place, name_of_error: Option<Name>) -> Self {
        Self { records: AtomicBool::new(false), destinations: Destinations::new(place, name_of_error) }
    }

    pub(crate) fn place(&self) -> Place {
        self.destinations.place
    }

    /// Whether there is a recorder. Asked each time until there is one, so that one that comes late is found.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.records.load(Ordering::Relaxed) || self.looks_for_recorder()
    }

    #[inline]
    fn looks_for_recorder(&self) -> bool {
        let found = installed::recorder();
        if found {
            self.records.store(true, Ordering::Relaxed);
        }
        found
    }

    /// What is kept for the source of this message.
    #[inline]
    pub(crate) fn of(self: &Arc<Self>, message: &Message) -> &Arc<Destination> {
        let origin = message.origin();
        match self.destinations.known(origin) {
            Some(destination) => destination,
            None => self.meet_first(origin),
        }
    }

    #[cold]
    fn meet_first(self: &Arc<Self>, origin: &Origin) -> &Arc<Destination> {
        if self.place() == Place::Process {
            return self.destinations.meet(origin);
        }
        // Messages that no source made share one origin without a name, which is there for ever and reports nothing of
        // a source.
        if !origin.name().is_empty() {
            origin.observe(self.clone());
        }
        self.meet(origin)
    }

    #[cold]
    fn meet(&self, origin: &Origin) -> &Arc<Destination> {
        let destination = self.destinations.meet(origin);
        destination.show_window(origin);
        // So that counters begin at zero, and their first increase is seen.
        destination.events();
        destination
    }
}

impl Observer for Shared {
    fn event(&self, origin: &Origin, event: &Event<'_>) {
        if events::counts(event) && self.records() {
            self.destinations.known(origin).unwrap_or_else(|| self.meet(origin)).record(event);
        }
    }
}
