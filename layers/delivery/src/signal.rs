//! Something that happens once, and that many wait for.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// A small number that only grows, and a way to wait for it.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    level: AtomicU8,
    raised: Notify,
}

impl Signal {
    pub(crate) fn level(&self) -> u8 {
        self.level.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self, level: u8) {
        if self.level.fetch_max(level, Ordering::AcqRel) < level {
            self.raised.notify_waiters();
        }
    }

    /// Cancel safe.
    pub(crate) async fn reached(&self, level: u8) {
        loop {
            // Made before the look: a `Notified` hears what is raised from its creation on.
            let raised = self.raised.notified();
            if self.level() >= level {
                return;
            }
            raised.await;
        }
    }
}
