//! How a batch hears that its driver or lane has nothing more to give.

use std::{sync::Arc, task::Wake};

use crate::owners::Owners;

/// The one waker of an owner. The owner's turns hold it until they are idle or gone; the owner is remembered as long.
pub(crate) struct Idle {
    pub(crate) owners: Arc<Owners>,
    pub(crate) owner: usize,
}

impl Wake for Idle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.owners.idle(self.owner);
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.owners.forget(self.owner);
    }
}
