//! One connection, and the next one when it is lost.

use std::time::Duration;

use ::redis::{
    AsyncConnectionConfig, Client, FromRedisValue, RedisError as Cause, ScriptInvocation,
    aio::MultiplexedConnection,
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tower_mq_delivery::{BoxError, SharedError};

use super::RedisError;

/// The first pause after a connection could not be made; it doubles up to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// One connection that all share, and what it takes to make the next one.
///
/// The client's own manager keeps a connection that does not answer any more; here it is given up, as a network that
/// swallows packets says nothing by itself.
pub(super) struct Link {
    client: Client,
    host: Box<str>,
    timeout: Duration,
    current: Mutex<Current>,
    /// Held by the one who connects.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that only the one that failed is given up.
    number: u64,
    failed: Option<Failed>,
}

/// No connection could be made, and for a while none is tried.
struct Failed {
    error: SharedError,
    until: Instant,
    pause: Duration,
}

impl Link {
    pub(super) async fn connect(url: &str, patience: Duration) -> Result<Self, RedisError> {
        // Its error may show what was in the URL.
        let client = Client::open(url).map_err(|_| RedisError::Url)?;
        let host = client.get_connection_info().addr().to_string().into();
        let link = Self {
            client,
            host,
            timeout: patience,
            current: Mutex::default(),
            connecting: Default::default(),
        };
        timeout(patience, link.connection()).await.map_err(|_| link.slow("connect"))??;
        Ok(link)
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Runs a script, on a new connection if there is none, and once more if that was lost meanwhile.
    pub(super) async fn ask<T>(
        &self,
        what: &'static str,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, RedisError>
    where
        T: FromRedisValue,
    {
        let mut last = 0;
        let asked = timeout(self.timeout, async {
            let mut lost: Option<Cause> = None;
            loop {
                let (mut connection, number) = match (self.connection().await, lost.take()) {
                    (Ok(there), _) => there,
                    (Err(error), None) => return Err(error),
                    // Not as if nothing had been sent: it may have been done.
                    (Err(_), Some(first)) => return Err(self.failed(what, first)),
                };
                let again = std::mem::replace(&mut last, number) != 0;
                let error = match script.invoke_async(&mut connection).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                };
                if is_lost(&error) {
                    self.give_up(number);
                    if !again {
                        lost = Some(error);
                        continue;
                    }
                }
                return Err(self.failed(what, error));
            }
        });
        asked.await.unwrap_or_else(|_| {
            self.give_up(last);
            Err(self.slow(what))
        })
    }

    /// Runs a script on the connection that there is. Without one it fails.
    pub(super) async fn tell(
        &self,
        what: &'static str,
        script: &ScriptInvocation<'_>,
    ) -> Result<(), RedisError> {
        let there = self.current.lock().there();
        let Some((mut connection, number)) = there else {
            return Err(self.refused(SharedError::from(BoxError::from("there is no connection"))));
        };
        match timeout(self.timeout, script.invoke_async::<i64>(&mut connection)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                if is_lost(&error) {
                    self.give_up(number);
                }
                Err(self.failed(what, error))
            }
            Err(_) => {
                self.give_up(number);
                Err(self.slow(what))
            }
        }
    }

    /// The connection, or a new one. One at a time connects, and the others wait for it.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        if let Some(there) = self.current.lock().there() {
            return Ok(there);
        }
        let _connecting = self.connecting.lock().await;
        {
            let current = self.current.lock();
            if let Some(there) = current.there() {
                return Ok(there);
            }
            if let Some(Failed { error, until, .. }) = &current.failed
                && *until > Instant::now()
            {
                return Err(self.refused(error.clone()));
            }
        }
        // Also if the one who waits for it gives up: it is its time-out that tells.
        let mut attempt = Attempt { link: self, over: false };
        // The one time-out is that of whoever waits.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // A server that wants a password does not say so before it is asked something.
            ::redis::cmd("PING").exec_async(&mut connection).await?;
            Ok::<_, Cause>(connection)
        };
        let connected = connected.await;
        attempt.over = true;
        match connected {
            Ok(connection) => {
                let mut current = self.current.lock();
                current.number += 1;
                current.failed = None;
                current.connection = Some(connection.clone());
                Ok((connection, current.number))
            }
            Err(error) => {
                let error = SharedError::from(BoxError::from(error));
                self.pause(error.clone());
                Err(self.refused(error))
            }
        }
    }

    fn pause(&self, error: SharedError) {
        let mut current = self.current.lock();
        let last = current.failed.as_ref().map(|failed| failed.pause * 2);
        let pause = last.unwrap_or(PAUSES[0]).min(PAUSES[1]);
        current.failed = Some(Failed { error, until: Instant::now() + pause, pause });
    }

    fn give_up(&self, number: u64) {
        let mut current = self.current.lock();
        if current.number == number {
            current.connection = None;
        }
    }

    fn refused(&self, error: SharedError) -> RedisError {
        RedisError::Connect { host: self.host.clone(), source: error.into() }
    }

    fn slow(&self, what: &'static str) -> RedisError {
        RedisError::Slow { host: self.host.clone(), what, timeout: self.timeout }
    }

    fn failed(&self, what: &'static str, error: Cause) -> RedisError {
        RedisError::Failed { host: self.host.clone(), what, source: error.into() }
    }
}

impl Current {
    fn there(&self) -> Option<(MultiplexedConnection, u64)> {
        self.connection.clone().map(|connection| (connection, self.number))
    }
}

/// An attempt to connect. Dropped before it is over, it has failed.
struct Attempt<'a> {
    link: &'a Link,
    over: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.link.pause(SharedError::from(BoxError::from("no connection was made in time")));
        }
    }
}

/// Another connection may do better.
fn is_lost(error: &Cause) -> bool {
    // After a failover the old master is a replica, and says so for as long as one asks it.
    error.is_io_error() || error.is_unrecoverable_error() || error.code() == Some("READONLY")
}
