//! Pauses a message queue while too many of its messages fail.
