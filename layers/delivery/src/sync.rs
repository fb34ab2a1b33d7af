//! The primitives whose order of events matters: loom's under `--cfg tower_mq_loom`, the real ones otherwise.

#[cfg(tower_mq_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(tower_mq_loom))]
pub(crate) use {
    atomic_waker::AtomicWaker,
    std::sync::atomic::{AtomicU64, Ordering},
};

/// Loom's waker, called as `atomic-waker`'s is.
#[cfg(tower_mq_loom)]
pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

#[cfg(tower_mq_loom)]
impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self(loom::future::AtomicWaker::new())
    }

    pub(crate) fn register(&self, waker: &std::task::Waker) {
        self.0.register_by_ref(waker);
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}
