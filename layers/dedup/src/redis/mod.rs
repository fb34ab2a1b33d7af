//! The store in Redis, for replicas.

mod error;
mod lease;
mod link;
mod options;
mod script;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use tokio::time::Sleep;
use tower_mq_delivery::BoxError;

pub use self::{error::RedisError, lease::RedisLease, options::RedisOptions};
use self::{lease::Shared, script::Answer};
use crate::{Begun, Id, LeaseLost, Store};

/// Remembers ids in Redis (or Valkey), for all replicas of a consumer. Clones are the same store, over one connection.
///
/// ```no_run
/// use tower_mq_dedup::{DedupLayer, RedisOptions, RedisStore};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://localhost").await?;
/// let layer = DedupLayer::new(store);
/// # Ok(())
/// # }
/// ```
///
/// One key for each id. While an id is running, the key holds a token of who runs it, and lives as long as the *lease*,
/// which is renewed while the handler runs: when a process dies, its ids are new again after that time. When the handler
/// has ended, the key says so and lives for the *ttl*. Only who holds the lease can end it; a lease that was lost is
/// logged, and reported when the handler ends ([`LeaseLost`](crate::LeaseLost)).
///
/// A twin in another process asks again after 50 ms, and then less and less often, down to once a second.
///
/// # What Redis must keep
/// A server that evicts keys (`maxmemory-policy` other than `noeviction`) or that loses its last writes when it fails over
/// or starts anew forgets ids, and their duplicates are handled.
///
/// # Cancel safety
/// A begin that is dropped half way is taken back in the background, as is everything that is forgotten: with the
/// connection that there is, once; if that fails, the lease ends by itself. A finish goes on when its future is dropped.
///
/// # Panics
/// Its methods need the runtime that it was connected in.
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

impl RedisStore {
    /// Connects with the default [options](RedisOptions).
    ///
    /// # Errors
    /// If the URL is none, or nobody answers within the time-out, or the server refuses. Later on it connects again by
    /// itself.
    pub async fn connect(url: &str) -> Result<Self, RedisError> {
        RedisOptions::new().connect(url).await
    }

    /// Time-outs, times and names other than the default ones.
    pub fn options() -> RedisOptions {
        RedisOptions::new()
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Store for RedisStore {
    type Lease = RedisLease;
    type Begin = Boxed<Result<Begun<RedisLease>, BoxError>>;
    type Finish = Boxed<Result<(), BoxError>>;
    type Wait = Sleep;

    fn begin(&self, id: Id) -> Self::Begin {
        let shared = self.0.clone();
        Box::pin(async move {
            let mut asked = Asked { lease: Some(shared.lease_on(id)), id, shared: &shared };
            let Some(lease) = &asked.lease else { return Ok(Begun::Running) };
            let answer = shared.begin(id, lease).await;
            if let Ok(Answer::Done | Answer::Theirs) | Err(RedisError::Connect { .. }) = answer {
                asked.lease = None;
            }
            Ok(match (answer?, asked.lease.take()) {
                (Answer::Ours, Some(lease)) => {
                    shared.hold(id, &lease);
                    Begun::New(lease)
                }
                (Answer::Done, _) => Begun::Done,
                _ => Begun::Running,
            })
        })
    }

    fn finish(&self, id: Id, lease: RedisLease) -> Self::Finish {
        let shared = self.0.clone();
        let finishes = self.0.spawn(async move {
            // Renewed until it is finished, so that nobody takes it meanwhile.
            let finished = shared.finish(id, &lease).await;
            shared.let_go(&lease);
            finished
        });
        Box::pin(async move {
            match finishes.await?? {
                Answer::Ours | Answer::Done => Ok(()),
                Answer::Theirs => Err(LeaseLost.into()),
            }
        })
    }

    fn forget(&self, id: Id, lease: RedisLease) {
        self.0.let_go(&lease);
        self.0.take_back(id, lease);
    }

    fn wait(&self, _: Id, round: u32) -> Sleep {
        let most = Duration::from_millis(50).saturating_mul(1 << round.min(5)).min(Duration::from_secs(1));
        tokio::time::sleep(most.mul_f64(0.75 + fastrand::f64() / 4.0))
    }
}

/// An id that is asked for. Dropped, it is taken back, whatever the server made of it.
struct Asked<'a> {
    shared: &'a Arc<Shared>,
    id: Id,
    lease: Option<RedisLease>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.shared.take_back(self.id, lease);
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
