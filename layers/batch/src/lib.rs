//! Gathers messages into batches, each lane its own, in order.
