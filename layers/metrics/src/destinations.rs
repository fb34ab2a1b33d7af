//! Everything that is kept for one source, found without a look at its name.

use std::sync::{
    Arc, Once, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use metrics::Label;
use parking_lot::Mutex;
use tower_mq_delivery::Origin;

use crate::{
    convention::{self, DESTINATION_NAME, OTHER, SYSTEM},
    deliveries::Deliveries,
    error_type::Name,
    events::Events,
    own,
    tries::Tries,
};

/// So many sources have labels of their own; all later ones share one set.
pub(crate) const NAMED: usize = 64;
/// So many sources are found at once, if they were made one after the other.
const SLOTS: usize = 64;

/// Where the layer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Delivery,
    Process,
}

/// The handles of one source, or of several of one name. Each group is made when it is first used.
pub(crate) struct Destination {
    pub(crate) place: Place,
    pub(crate) name_of_error: Option<Name>,
    system: &'static str,
    name: Box<str>,
    pub(crate) deliveries: Deliveries,
    pub(crate) tries: Tries,
    events: OnceLock<Events>,
}

impl Destination {
    fn new(all: &Destinations, system: &'static str, name: &str) -> Self {
        Self {
            place: all.place,
            name_of_error: all.name_of_error,
            system,
            name: name.into(),
            deliveries: Deliveries::default(),
            tries: Tries::default(),
            events: OnceLock::new(),
        }
    }

    /// The labels that all its series have.
    pub(crate) fn labels(&self) -> Vec<Label> {
        let system = if self.system.is_empty() { OTHER } else { self.system };
        let mut labels = vec![Label::from_static_parts(SYSTEM, system)];
        if !self.name.is_empty() {
            labels.push(Label::new(DESTINATION_NAME, String::from(&*self.name)));
        }
        labels
    }

    /// These, and one more.
    pub(crate) fn labels_with(&self, name: &'static str, value: &'static str) -> Vec<Label> {
        let mut labels = self.labels();
        labels.push(Label::from_static_parts(name, value));
        labels
    }

    pub(crate) fn events(&self) -> &Events {
        self.events.get_or_init(|| Events::new(self))
    }
}

/// All sources that were seen.
///
/// A slot holds a source's number and its place in one word, so that finding it is one load, takes no lock, and cannot
/// be mistaken: numbers are not used again, as addresses are.
pub(crate) struct Destinations {
    pub(crate) place: Place,
    name_of_error: Option<Name>,
    slots: [AtomicU64; SLOTS],
    places: [OnceLock<Arc<Destination>>; NAMED + 1],
    adding: Mutex<()>,
    described: Once,
}

impl Destinations {
    pub(crate) fn new(place: Place, name_of_error: Option<Name>) -> Self {
        Self {
            place,
            name_of_error,
            slots: [const { AtomicU64::new(0) }; SLOTS],
            places: [const { OnceLock::new() }; NAMED + 1],
            adding: Mutex::new(()),
            described: Once::new(),
        }
    }

    /// One that was met before, and not too many others since.
    #[inline]
    pub(crate) fn known(&self, origin: &Origin) -> Option<&Arc<Destination>> {
        let slot = self.slots[origin.id() as usize % SLOTS].load(Ordering::Acquire);
        if slot >> 8 == origin.id() { self.places[(slot & 0xff) as usize].get() } else { None }
    }

    /// Finds it by its name, or gives it a place.
    #[cold]
    pub(crate) fn meet(&self, origin: &Origin) -> &Arc<Destination> {
        self.described.call_once(|| {
            convention::describe();
            own::describe();
        });
        let _adding = self.adding.lock();
        let is_its = |place: &OnceLock<Arc<Destination>>| {
            place.get().is_none_or(|there| there.system == origin.system() && *there.name == *origin.name())
        };
        let named = &self.places[..NAMED];
        let place = named.iter().position(is_its).unwrap_or(NAMED);
        let destination = self.places[place].get_or_init(|| {
            Arc::new(if place == NAMED {
                Destination::new(self, OTHER, OTHER)
            } else {
                Destination::new(self, origin.system(), origin.name())
            })
        });
        self.slots[origin.id() as usize % SLOTS].store(origin.id() << 8 | place as u64, Ordering::Release);
        destination
    }
}
