//! An id that is ours.

use std::sync::Arc;

use tower_mq_delivery::Message;

use crate::{Id, Store, settings::Settings};

/// An id that is running for us. Dropped, it is forgotten.
pub(crate) struct Claim<St: Store> {
    settings: Arc<Settings<St>>,
    id: Id,
    lease: Option<St::Lease>,
    message: Message,
}

impl<St: Store> Claim<St> {
    #[inline]
    pub(crate) fn new(settings: &Arc<Settings<St>>, id: Id, lease: St::Lease, message: &Message) -> Self {
        Self { settings: settings.clone(), id, lease: Some(lease), message: message.aside() }
    }

    pub(crate) fn settings(&self) -> &Settings<St> {
        &self.settings
    }

    pub(crate) fn message(&self) -> &Message {
        &self.message
    }

    /// Makes it done; from here on it is not forgotten. `Some`: the store has to be waited for.
    #[inline]
    pub(crate) fn finish(&mut self) -> Option<St::Finish> {
        let store = &self.settings.store;
        match store.finish_now(self.id, self.lease.take()?) {
            Ok(()) => None,
            Err(lease) => Some(store.finish(self.id, lease)),
        }
    }
}

impl<St: Store> Drop for Claim<St> {
    #[inline]
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.settings.store.forget(self.id, lease);
        }
    }
}
