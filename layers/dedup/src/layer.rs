//! The layer: plain configuration.

use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;
use tower_mq_delivery::Message;

use crate::{Dedup, Id, MemoryStore, settings::Settings};

/// Handles each message id once. See the [crate's docs](crate).
///
/// All services that it makes share its store; so do those of its clones.
///
/// # Order
/// Inside Settle. Outside the dead letters, Batch, Retry and Timeout, so that it sees the final outcome.
#[derive(Clone)]
#[must_use]
pub struct DedupLayer<St = MemoryStore> {
    settings: Settings<St>,
}

/// What becomes of a message when the store does not tell whether it is a duplicate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDown {
    /// It waits for the store, for as long as [`patience`](DedupLayer::patience) says or until the stack drains, and is
    /// released then. Fails closed: nothing is handled twice because the store is down, and without the store nothing is
    /// handled.
    #[default]
    Wait,
    /// It is handled. Fails open: while the store is down, duplicates are handled, too.
    Handle,
}

impl DedupLayer {
    /// Remembers ids in this process: up to 100,000, for an hour each.
    pub fn in_memory() -> Self {
        Self::new(MemoryStore::new())
    }

    /// How long an id is remembered, from the end of its handler. Default: 1 h. The layer starts with an empty store.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.store = self.settings.store.ttl(ttl);
        self
    }

    /// How many ids are remembered. Default: 100,000. See [`MemoryStore::capacity`]. The layer starts with an empty
    /// store.
    ///
    /// # Panics
    /// If it is zero.
    pub fn capacity(mut self, ids: usize) -> Self {
        self.settings.store = self.settings.store.capacity(ids);
        self
    }
}

impl<St> DedupLayer<St> {
    /// Remembers ids in `store`.
    pub fn new(store: St) -> Self {
        Self { settings: Settings::new(store) }
    }

    /// What tells messages apart. Default: [`Message::id`]. A message for which it returns `None` is handled, and
    /// reported as [`Unidentified`](tower_mq_delivery::Event::Unidentified).
    ///
    /// ```
    /// use tower_mq_dedup::{DedupLayer, Id};
    ///
    /// // The producer's own number for an order, and the version of it that this is.
    /// let layer = DedupLayer::in_memory().key(|message| {
    ///     let (order, version) = (message.header("order")?, message.header("version")?);
    ///     Some(Id::of(format!("{} {}", order.as_str()?, version.as_i64()?)))
    /// });
    /// # let _ = layer;
    /// ```
    pub fn key<F>(mut self, key: F) -> Self
    where
        F: Fn(&Message) -> Option<Id> + Send + Sync + 'static,
    {
        self.settings.key = Some(Arc::new(key));
        self
    }

    /// Among which messages an id is told apart. Default: those of the same queue or topic
    /// ([`Message::destination`]), so two queues that are bound to one exchange each handle a message.
    ///
    /// Name a scope if the same message may come by several queues and is to be handled once, or if a queue's name
    /// changes. Two consumers that do different things with the same messages need different scopes when they share a
    /// store.
    pub fn scope(mut self, scope: impl AsRef<str>) -> Self {
        self.settings.scope = Some(Id::scope(scope.as_ref()));
        self
    }

    /// What becomes of a message when the store fails or is too slow. Default: [`StoreDown::Wait`].
    pub const fn on_store_error(mut self, down: StoreDown) -> Self {
        self.settings.down = down;
        self
    }

    /// The longest that a message waits for its twin, or for the store, until it is released. Default: 5 min.
    ///
    /// It holds up its lane meanwhile. Some brokers count a release as an attempt, so short is not better.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// The store.
    pub const fn store(&self) -> &St {
        &self.settings.store
    }
}

impl<S, St: Clone> Layer<S> for DedupLayer<St> {
    type Service = Dedup<S, St>;

    fn layer(&self, inner: S) -> Dedup<S, St> {
        Dedup { inner, settings: Arc::new(self.settings.clone()), last: None }
    }
}

impl<St: fmt::Debug> fmt::Debug for DedupLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedupLayer")
            .field("store", &self.settings.store)
            .field("own_key", &self.settings.key.is_some())
            .field("own_scope", &self.settings.scope.is_some())
            .field("on_store_error", &self.settings.down)
            .field("patience", &self.settings.patience)
            .finish()
    }
}
