//! What a layer and its services share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tower_mq_delivery::{BoxError, Event, Message};

use crate::{Id, StoreDown};

/// A user's function from messages to ids.
pub(crate) type IdFn = Arc<dyn Fn(&Message) -> Option<Id> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings<St> {
    pub(crate) store: St,
    pub(crate) key: Option<IdFn>,
    /// The hash of a scope that stands in the place of the destination.
    pub(crate) scope: Option<Id>,
    pub(crate) down: StoreDown,
    pub(crate) patience: Duration,
    pub(crate) said: Arc<Said>,
}

/// What was logged, so that it is not logged for every message.
#[derive(Debug, Default)]
pub(crate) struct Said {
    down: AtomicBool,
    unidentified: AtomicBool,
}

impl<St> Settings<St> {
    pub(crate) fn new(store: St) -> Self {
        Self {
            store,
            key: None,
            scope: None,
            down: StoreDown::Wait,
            patience: Duration::from_secs(300),
            said: Arc::default(),
        }
    }

    /// What tells this message from others; `None`: nothing does. `last`: the source that the last message came from, and
    /// the scope of its name.
    #[inline]
    pub(crate) fn id(&self, message: &Message, last: &mut Option<(u64, Id)>) -> Option<Id> {
        let properties = message.properties();
        let id = match &self.key {
            None => Id::of(properties.id()?.as_bytes()),
            Some(key) => key(message)?,
        };
        if let Some(scope) = self.scope {
            return Some(id.mixed(scope));
        }
        if let Some(destination) = properties.destination() {
            return Some(id.mixed(Id::scope(&destination)));
        }
        let origin = message.origin();
        match last {
            Some((source, scope)) if *source == origin.id() => Some(id.mixed(*scope)),
            _ => {
                let scope = Id::scope(origin.name());
                *last = Some((origin.id(), scope));
                Some(id.mixed(scope))
            }
        }
    }

    /// A message has no id.
    #[cold]
    pub(crate) fn unidentified(&self, message: &Message) {
        if !self.said.unidentified.swap(true, Relaxed) {
            message.origin().warn(
                "a message has no id, so a duplicate of it would be handled again: have its producer set one, or tell \
                 the dedup layer what else to go by with `.key(..)`",
            );
        }
        message.origin().report(&Event::Unidentified { message });
    }

    /// The store has failed.
    #[cold]
    pub(crate) fn failed(&self, message: &Message, error: &BoxError) {
        let destination = message.destination();
        match self.said.down.swap(true, Relaxed) {
            false => {
                tracing::warn!(%destination, %error, policy = ?self.down, "the store of message ids has failed")
            }
            true => tracing::debug!(%destination, %error, "the store of message ids fails"),
        }
        message.origin().report(&Event::StoreFailed { error });
    }

    /// The store has answered.
    #[inline]
    pub(crate) fn answered(&self) {
        if self.said.down.load(Relaxed) && self.said.down.swap(false, Relaxed) {
            tracing::info!("the store of message ids answers again");
        }
    }
}
