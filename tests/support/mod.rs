//! What several test files need. Each takes it in with `mod support;` and uses what it needs of it.

#![allow(dead_code, unreachable_pub)]

pub mod proxy;
