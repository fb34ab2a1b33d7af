//! Which messages have failed here, and how often: for queues whose broker does not count.

use std::collections::{HashMap, VecDeque};

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
    failed: HashMap<Fingerprint, (u32, u64)>,
    // A fingerprint may stand here more than once: only its last mark counts.
    order: VecDeque<(Fingerprint, u64)>,
    marks: u64,
}

impl Tried {
    pub(super) fn new(most: usize) -> Self {
        Self { most, counts: Mutex::default() }
    }

    /// How many attempts of this message have failed.
    pub(super) fn count(&self, print: Fingerprint) -> Option<u32> {
        self.counts.lock().failed.get(&print).map(|(failed, _)| *failed)
    }

    /// This many attempts have failed.
    pub(super) fn failed(&self, print: Fingerprint, attempts: u32) {
        let mut counts = self.counts.lock();
        let Counts { failed, order, marks } = &mut *counts;
        *marks += 1;
        failed.insert(print, (attempts, *marks));
        order.push_back((print, *marks));
        while failed.len() > self.most || order.len() > 2 * self.most {
            let Some((oldest, mark)) = order.pop_front() else { break };
            if failed.get(&oldest).is_some_and(|(_, last)| *last == mark) {
                failed.remove(&oldest);
            }
        }
    }

    /// It will not come again.
    pub(super) fn forget(&self, print: Fingerprint) {
        self.counts.lock().failed.remove(&print);
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
        for _ in 0..1000 {
            tried.failed(print("d"), 1);
        }
        assert!(tried.counts.lock().order.len() <= 4);
        tried.forget(print("d"));
        assert_eq!(tried.count(print("d")), None);
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
