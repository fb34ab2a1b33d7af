//! Which messages have failed here, and how often: for queues whose broker does not count.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use lapin::types::ShortString;
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

/// Tells messages apart: by their id, else by payload and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64);

/// Of a large payload only this much of each end is looked at.
const END: usize = 512;

impl Fingerprint {
    pub(super) fn of(id: Option<&ShortString>, payload: &Bytes, key: Option<&Bytes>) -> Self {
        let mut hash = Xxh3::new();
        if let Some(id) = id {
            hash.update(id.as_str().as_bytes());
            return Self(hash.digest());
        }
        if payload.len() > 2 * END {
            hash.update(&payload[..END]);
            hash.update(&payload[payload.len() - END..]);
            hash.update(&payload.len().to_le_bytes());
        } else {
            hash.update(payload);
        }
        // An absent key is not an empty one.
        if let Some(key) = key {
            hash.update(b"\0");
            hash.update(key);
        }
        Self(hash.digest())
    }
}

/// The failed attempts of as many messages as the window holds. The one that failed longest ago is forgotten first.
#[derive(Debug)]
pub(super) struct Tried {
    most: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    failed: HashMap<Fingerprint, Failed>,
    /// By when they failed last.
    order: BTreeMap<u64, Fingerprint>,
    failures: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    attempts: u32,
    last: u64,
}

impl Tried {
    pub(super) fn new(most: usize) -> Self {
        Self { most, counts: Mutex::default() }
    }

    /// How many attempts of this message have failed.
    pub(super) fn count(&self, print: Fingerprint) -> Option<u32> {
        self.counts.lock().failed.get(&print).map(|failed| failed.attempts)
    }

    /// This many attempts have failed.
    pub(super) fn failed(&self, print: Fingerprint, attempts: u32) {
        let mut counts = self.counts.lock();
        let Counts { failed, order, failures } = &mut *counts;
        *failures += 1;
        if let Some(before) = failed.insert(print, Failed { attempts, last: *failures }) {
            order.remove(&before.last);
        }
        order.insert(*failures, print);
        if failed.len() > self.most
            && let Some((_, oldest)) = order.pop_first()
        {
            failed.remove(&oldest);
        }
    }

    /// It will not come again.
    pub(super) fn forget(&self, print: Fingerprint) {
        let mut counts = self.counts.lock();
        if let Some(failed) = counts.failed.remove(&print) {
            counts.order.remove(&failed.last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(payload: &'static str) -> Fingerprint {
        Fingerprint::of(None, &Bytes::from_static(payload.as_bytes()), None)
    }

    #[test]
    fn it_remembers_the_last_that_failed_and_no_more_than_the_window() {
        let tried = Tried::new(2);
        tried.failed(print("a"), 1);
        tried.failed(print("b"), 1);
        tried.failed(print("a"), 2);
        tried.failed(print("c"), 1);
        assert_eq!(["a", "b", "c"].map(|p| tried.count(print(p))), [Some(2), None, Some(1)]);
        for attempt in 3..1000 {
            tried.failed(print("a"), attempt);
        }
        assert_eq!(tried.count(print("c")), Some(1), "one that fails often pushes out no other");
        tried.forget(print("a"));
        assert_eq!(tried.count(print("a")), None);
        let counts = tried.counts.lock();
        assert_eq!((counts.failed.len(), counts.order.len()), (1, 1));
    }

    #[test]
    fn messages_are_told_apart_by_id_else_by_payload_and_key() {
        let (payload, other) = (Bytes::from_static(b"x"), Bytes::from_static(b"y"));
        let id = ShortString::from("7");
        assert_eq!(Fingerprint::of(Some(&id), &payload, None), Fingerprint::of(Some(&id), &other, None));
        let keyed = |key: Option<&Bytes>| Fingerprint::of(None, &payload, key);
        assert_ne!(keyed(None), keyed(Some(&Bytes::new())));
        assert_ne!(keyed(Some(&payload)), keyed(Some(&other)));
    }
}
