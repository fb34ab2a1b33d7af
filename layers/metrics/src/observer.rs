//! Hears of what happens between layers, driver and source.

use std::{fmt, sync::Arc};

use tower_mq_delivery::{Event, Message, Observer, Origin};

use crate::destinations::{Destination, Destinations};

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
#[derive(Default)]
pub(crate) struct Shared(Destinations);

impl Shared {
    /// What is kept for the source of this message. `observing`: it is also heard what is reported of it.
    #[inline]
    pub(crate) fn of(self: &Arc<Self>, message: &Message, observing: bool) -> &Arc<Destination> {
        let origin = message.origin();
        match self.0.known(origin) {
            Some(destination) => destination,
            None if observing => self.meet_and_observe(origin),
            None => self.0.meet(origin),
        }
    }

    #[cold]
    fn meet_and_observe(self: &Arc<Self>, origin: &Origin) -> &Arc<Destination> {
        // Messages that no source made share one origin without a name, which is there for ever and reports nothing of
        // a source.
        if !origin.name().is_empty() {
            origin.observe(self.clone());
        }
        self.meet(origin)
    }

    #[cold]
    fn meet(&self, origin: &Origin) -> &Arc<Destination> {
        let destination = self.0.meet(origin);
        destination.show_window(origin);
        // So that counters begin at zero, and their first increase is seen.
        destination.events();
        destination
    }
}

impl Observer for Shared {
    fn event(&self, origin: &Origin, event: &Event<'_>) {
        let destination = self.0.known(origin).unwrap_or_else(|| self.meet(origin));
        destination.record(event);
    }
}
