//! Handles each message id once, also across processes.
