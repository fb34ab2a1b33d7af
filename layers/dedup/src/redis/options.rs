//! How Redis is used.

use std::{sync::Arc, time::Duration};

use super::{RedisError, RedisStore, lease::Shared, link::Link};

/// How a [`RedisStore`] uses its server. Replicas that share ids must set the same prefix.
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisOptions {
    pub(super) ttl: Duration,
    pub(super) lease: Duration,
    pub(super) timeout: Duration,
    pub(super) prefix: Box<str>,
}

impl RedisOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            ttl: Duration::from_secs(3600),
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(1),
            prefix: "tower-mq:dedup:".into(),
        }
    }

    /// How long an id is remembered, from the end of its handler. Default: 1 h. At least 1 ms.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long the ids of a process that died are taken for running. Default: 30 s. It is renewed after each third of
    /// it, so it must be longer than three time-outs.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The longest that is waited for an answer, or for a connection. Default: 1 s.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What the names of the keys begin with. Default: `tower-mq:dedup:`.
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Connects to a server: `redis://user:password@host:6379/0`, or `unix:///path`.
    ///
    /// For TLS (`rediss://`) add the crate `redis` with one of its TLS features to your program.
    ///
    /// # Errors
    /// If the URL is none, if the settings do not fit, if nobody answers within the time-out, or if the server refuses.
    pub async fn connect(self, url: &str) -> Result<RedisStore, RedisError> {
        if self.ttl < Duration::from_millis(1) {
            return Err(RedisError::Settings(
                "`ttl` must be 1 ms or more: Redis keeps nothing for a shorter time",
            ));
        }
        if self.lease / 3 <= self.timeout {
            return Err(RedisError::Settings(
                "`lease` must be longer than three times the `timeout`: it is renewed after each third of it",
            ));
        }
        let link = Link::connect(url, self.timeout).await?;
        Ok(RedisStore(Arc::new(Shared::new(link, self))))
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self::new()
    }
}
