//! The primitives whose order of events matters: loom's under `--cfg tower_mq_loom`, the real ones otherwise.

#[cfg(not(tower_mq_loom))]
pub(crate) use {
    parking_lot::Mutex,
    std::sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

#[cfg(tower_mq_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Loom's lock, locked as `parking_lot`'s is.
#[cfg(tower_mq_loom)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(tower_mq_loom)]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a model has failed before")
    }
}
