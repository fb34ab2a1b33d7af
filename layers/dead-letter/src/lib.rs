//! Stores a confirmed copy of each rejected message before it is acked.
