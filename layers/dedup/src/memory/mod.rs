//! The store in this process.

mod ids;

use std::{
    collections::HashMap,
    fmt,
    future::{Ready, ready},
    hash::{BuildHasherDefault, Hasher},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tower_mq_delivery::BoxError;

use self::ids::Ids;
use crate::{Begun, Id, Store};

/// Remembers ids in this process, for a time and up to a number. Clones are the same store.
///
/// It explains what one process sees twice: a connection that was lost, a producer that sent again. What another
/// replica handled, or this process before it was started anew, it does not know.
///
/// # Cost
/// About 60 bytes for each id that it remembers, taken as they come and kept; nothing is allocated for a delivery once it
/// is full, or once as many ids fall out of their time as come in. Two short locks for each delivery.
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    ttl: Duration,
    capacity: usize,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    ids: Ids,
    /// Those who wait for an id that is running: mostly nobody.
    waiting: HashMap<Id, Vec<(u64, Waker)>, BuildHasherDefault<Hashed>>,
    tickets: u64,
    crowded: bool,
}

const FOREVER: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// The lease of a [`MemoryStore`]: where the id is. There is no other process that could break it.
#[derive(Debug, PartialEq, Eq)]
pub struct MemoryLease(usize);

impl MemoryStore {
    /// Remembers up to 100,000 ids, for an hour each.
    pub fn new() -> Self {
        Self::with(Duration::from_secs(3600), 100_000)
    }

    fn with(ttl: Duration, capacity: usize) -> Self {
        // A clock can be added to only so often.
        Self(Arc::new(Shared { ttl: ttl.min(FOREVER), capacity, shelf: Mutex::default() }))
    }

    /// How long it remembers an id, from the end of its handler. Default: 1 h. The store that this returns is empty.
    #[must_use]
    pub fn ttl(&self, ttl: Duration) -> Self {
        Self::with(ttl, self.0.capacity)
    }

    /// How many ids it remembers. Default: 100,000. Those that are done for the longest make room for new ones, which
    /// is logged when it happens for the first time. Ids that are running come on top: they are as many as deliveries
    /// are being handled. The store that this returns is empty.
    ///
    /// # Panics
    /// If it is zero.
    #[must_use]
    pub fn capacity(&self, ids: usize) -> Self {
        assert!(ids > 0, "a store of ids with room for none remembers nothing: `capacity` must be 1 or more");
        Self::with(self.0.ttl, ids)
    }

    #[inline]
    fn begin_at_once(&self, id: Id) -> Begun<MemoryLease> {
        let ids = &mut self.0.shelf.lock().ids;
        if let Some(running) = ids.find(id) {
            if running {
                return Begun::Running;
            }
            // Done, unless that was too long ago.
            ids.expire(Instant::now());
            if ids.find(id).is_some() {
                return Begun::Done;
            }
        }
        Begun::New(MemoryLease(ids.begin(id)))
    }

    /// How many ids it holds: those that are running, and those that are done and still remembered.
    pub fn len(&self) -> usize {
        let ids = &mut self.0.shelf.lock().ids;
        ids.expire(Instant::now());
        ids.len()
    }

    /// It holds no id.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Shelf {
    #[inline]
    fn waiters(&mut self, id: Id) -> Option<Vec<(u64, Waker)>> {
        // Mostly nobody waits for any.
        if self.waiting.is_empty() { None } else { self.waiting.remove(&id) }
    }
}

#[cold]
fn wake(waiters: Vec<(u64, Waker)>) {
    waiters.into_iter().for_each(|(_, waker)| waker.wake());
}

impl Store for MemoryStore {
    type Lease = MemoryLease;
    type Begin = Begins;
    type Finish = Ready<Result<(), BoxError>>;
    type Wait = Wait;

    const LOCAL: bool = true;

    #[inline]
    fn begin_now(&self, id: Id) -> Option<Begun<MemoryLease>> {
        Some(self.begin_at_once(id))
    }

    fn begin(&self, id: Id) -> Begins {
        Begins { store: self.clone(), id }
    }

    #[inline]
    fn finish_now(&self, id: Id, lease: MemoryLease) -> Result<(), MemoryLease> {
        let now = Instant::now();
        let mut crowds = false;
        let waiters = {
            let shelf = &mut *self.0.shelf.lock();
            shelf.ids.expire(now);
            if shelf.ids.done() >= self.0.capacity {
                shelf.ids.forget_oldest();
                crowds = !std::mem::replace(&mut shelf.crowded, true);
            }
            shelf.ids.finish(id, lease.0, now + self.0.ttl);
            shelf.waiters(id)
        };
        if crowds {
            self.0.warn();
        }
        if let Some(waiters) = waiters {
            wake(waiters);
        }
        Ok(())
    }

    fn finish(&self, id: Id, lease: MemoryLease) -> Self::Finish {
        let _done = self.finish_now(id, lease);
        ready(Ok(()))
    }

    #[cold]
    fn forget(&self, id: Id, lease: MemoryLease) {
        let waiters = {
            let mut shelf = self.0.shelf.lock();
            shelf.ids.forget(id, lease.0);
            shelf.waiters(id)
        };
        if let Some(waiters) = waiters {
            wake(waiters);
        }
    }

    fn wait(&self, id: Id, _: u32) -> Wait {
        Wait { shared: self.0.clone(), id, ticket: None }
    }
}

impl Shared {
    #[cold]
    fn warn(&self) {
        tracing::warn!(
            capacity = self.capacity,
            ttl = ?self.ttl,
            "the store of message ids is full and forgets ids before their time: raise its capacity or lower its ttl"
        );
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("ttl", &self.0.ttl)
            .field("capacity", &self.0.capacity)
            .finish_non_exhaustive()
    }
}

/// Begins with an id of a [`MemoryStore`], when it is polled.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Begins {
    store: MemoryStore,
    id: Id,
}

impl Future for Begins {
    type Output = Result<Begun<MemoryLease>, BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(self.store.begin_at_once(self.id)))
    }
}

/// Waits until an id of a [`MemoryStore`] is not running.
#[must_use = "futures do nothing unless polled"]
pub struct Wait {
    shared: Arc<Shared>,
    id: Id,
    ticket: Option<u64>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { shared, id, ticket } = &mut *self;
        let replaced = {
            let mut shelf = shared.shelf.lock();
            if shelf.ids.find(*id) != Some(true) {
                return Poll::Ready(());
            }
            shelf.tickets += 1;
            let next = shelf.tickets;
            let ours = *ticket.get_or_insert(next);
            let waiters = shelf.waiting.entry(*id).or_default();
            match waiters.iter_mut().find(|(theirs, _)| *theirs == ours) {
                Some((_, waker)) if waker.will_wake(cx.waker()) => None,
                Some((_, waker)) => Some(std::mem::replace(waker, cx.waker().clone())),
                None => {
                    waiters.push((ours, cx.waker().clone()));
                    None
                }
            }
        };
        // Outside the lock: a waker may hold anything.
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(ours) = self.ticket else { return };
        let waiter = {
            let mut shelf = self.shared.shelf.lock();
            let Some(waiters) = shelf.waiting.get_mut(&self.id) else { return };
            let place = waiters.iter().position(|(theirs, _)| *theirs == ours);
            let waiter = place.map(|place| waiters.swap_remove(place));
            if waiters.is_empty() {
                shelf.waiting.remove(&self.id);
            }
            waiter
        };
        drop(waiter);
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Ids are hashes, so there is nothing to do.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
