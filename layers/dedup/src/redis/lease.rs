//! The ids that this process runs, and the leases on them.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    RedisError, RedisOptions,
    link::Link,
    script::{Answer, BEGIN, FINISH, FORGET, RENEW},
};
use crate::Id;

/// How many leases are renewed by one script: short enough that nobody else waits for it.
const AT_ONCE: usize = 100;

/// Proves to Redis that an id is ours.
#[derive(Clone, Debug)]
pub struct RedisLease {
    number: u64,
    token: Box<str>,
}

/// What the clones of a store share.
pub(super) struct Shared {
    link: Link,
    options: RedisOptions,
    runtime: Handle,
    /// Another one in each process.
    process: u64,
    next: AtomicU64,
    running: Mutex<Running>,
    /// Ids that nobody runs, and that the server may take for running: whoever begins with one takes its lease over.
    doubtful: Mutex<HashMap<Id, (RedisLease, Instant)>>,
}

#[derive(Default)]
struct Running {
    leases: HashMap<u64, (Id, Box<str>)>,
    /// There is a task that renews them.
    renewed: bool,
}

impl Shared {
    pub(super) fn new(link: Link, options: RedisOptions) -> Self {
        Self {
            link,
            options,
            runtime: Handle::current(),
            process: fastrand::u64(..),
            next: AtomicU64::new(0),
            running: Mutex::default(),
            doubtful: Mutex::default(),
        }
    }

    /// A token that nobody has any more.
    pub(super) fn lease_on(&self, id: Id) -> RedisLease {
        if let Some((lease, _)) = self.doubtful.lock().remove(&id) {
            return lease;
        }
        let number = self.next.fetch_add(1, Relaxed);
        RedisLease { number, token: format!("{:016x}-{number:x}", self.process).into() }
    }

    fn key(&self, id: Id) -> String {
        format!("{}{id}", self.options.prefix)
    }

    pub(super) async fn begin(&self, id: Id, lease: &RedisLease) -> Result<Answer, RedisError> {
        let mut begin = BEGIN.key(self.key(id));
        begin.arg(&*lease.token).arg(millis(self.options.lease));
        self.link.ask("begin with an id", &begin).await.map(|answer: i64| answer.into())
    }

    pub(super) async fn finish(&self, id: Id, lease: &RedisLease) -> Result<Answer, RedisError> {
        let mut finish = FINISH.key(self.key(id));
        finish.arg(&*lease.token).arg(millis(self.options.ttl));
        self.link.ask("remember an id", &finish).await.map(|answer: i64| answer.into())
    }

    /// Has it forgotten in the background, if it is still ours.
    pub(super) fn take_back(self: &Arc<Self>, id: Id, lease: RedisLease) {
        let shared = self.clone();
        self.spawn(async move {
            let mut forget = FORGET.key(shared.key(id));
            forget.arg(&*lease.token);
            if let Err(error) = shared.link.tell("forget an id", &forget).await {
                tracing::debug!(%error, "other processes take an id for running until its lease ends");
                shared.doubt(id, lease);
            }
        });
    }

    fn doubt(&self, id: Id, lease: RedisLease) {
        let now = Instant::now();
        let mut doubtful = self.doubtful.lock();
        // The server has forgotten them by now.
        doubtful.retain(|_, (_, since)| now.duration_since(*since) < self.options.lease);
        doubtful.insert(id, (lease, now));
    }

    pub(super) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime.spawn(future)
    }

    /// Renews the lease from now on.
    pub(super) fn hold(self: &Arc<Self>, id: Id, lease: &RedisLease) {
        let begins = {
            let mut running = self.running.lock();
            running.leases.insert(lease.number, (id, lease.token.clone()));
            !std::mem::replace(&mut running.renewed, true)
        };
        if begins {
            // Weak, or a store that nobody has any more would renew what it forgot to let go.
            let (shared, every) = (Arc::downgrade(self), self.options.lease / 3);
            self.spawn(async move {
                loop {
                    sleep(every).await;
                    let Some(shared) = shared.upgrade() else { return };
                    if !shared.renew().await {
                        return;
                    }
                }
            });
        }
    }

    /// Renews the lease no more.
    pub(super) fn let_go(&self, lease: &RedisLease) {
        self.running.lock().leases.remove(&lease.number);
    }

    /// `false`: there is nothing to renew, and whoever comes starts anew.
    async fn renew(&self) -> bool {
        let leases: Vec<_> = {
            let mut running = self.running.lock();
            running.renewed = !running.leases.is_empty();
            running.leases.iter().map(|(number, (id, token))| (*number, *id, token.clone())).collect()
        };
        for leases in leases.chunks(AT_ONCE) {
            let mut renew = RENEW.prepare_invoke();
            renew.arg(millis(self.options.lease));
            for (_, id, token) in leases {
                renew.key(self.key(*id)).arg(&**token);
            }
            match self.link.ask::<Vec<usize>>("renew leases", &renew).await {
                Ok(lost) => lost.into_iter().filter_map(|place| leases.get(place - 1)).for_each(|(number, id, _)| {
                    // Unless it has ended meanwhile.
                    if self.running.lock().leases.remove(number).is_some() {
                        tracing::warn!(%id, "the lease of an id that is still being handled was lost to somebody else");
                    }
                }),
                Err(error) => tracing::warn!(%error, leases = leases.len(), "leases were not renewed"),
            }
        }
        !leases.is_empty()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("host", &self.link.host())
            .field("options", &self.options)
            .field("running", &self.running.lock().leases.len())
            .finish_non_exhaustive()
    }
}
