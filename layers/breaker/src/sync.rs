//! The primitives whose order of events matters: loom's under `--cfg tower_mq_loom`, the real ones otherwise.

#[cfg(tower_mq_loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
#[cfg(not(tower_mq_loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
