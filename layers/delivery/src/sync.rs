//! The primitives whose order of events matters: loom's under `--cfg tower_mq_loom`, the real ones otherwise.

#[cfg(tower_mq_loom)]
pub(crate) use loom::{
    future::AtomicWaker,
    sync::atomic::{AtomicU64, Ordering},
};
#[cfg(not(tower_mq_loom))]
pub(crate) use {
    atomic_waker::AtomicWaker,
    std::sync::atomic::{AtomicU64, Ordering},
};
