//! What may go wrong between us and Redis.

use std::time::Duration;

use tower_mq_delivery::BoxError;

/// Redis did not do what it was asked. Names the host, never the password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// What was given is not a URL of a Redis server.
    #[error("not the URL of a Redis server: it looks like `redis://user:password@host:6379/0`")]
    Url,
    /// Two settings do not fit together.
    #[error("{0}")]
    Settings(&'static str),
    /// There is no connection.
    #[error("could not connect to Redis at `{host}`: {source}")]
    Connect {
        /// Where.
        host: Box<str>,
        /// Why not.
        source: BoxError,
    },
    /// No answer came in time.
    #[error("Redis at `{host}` did not answer within {timeout:?} when it was to {what}")]
    Slow {
        /// Where.
        host: Box<str>,
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        timeout: Duration,
    },
    /// It answered with an error, or the connection was lost.
    #[error("Redis at `{host}` could not {what}: {source}")]
    Failed {
        /// Where.
        host: Box<str>,
        /// What was asked.
        what: &'static str,
        /// Why not.
        source: BoxError,
    },
}
