//! The layers that are still to come, as simple as they can be, with the types that they will have: so that the whole
//! stack is composed, and the errors of those who compose it wrongly are seen, from the first day on.

#![allow(dead_code, unused_imports, unreachable_pub, missing_debug_implementations)]

mod dedup;

pub use dedup::DedupLayer;
