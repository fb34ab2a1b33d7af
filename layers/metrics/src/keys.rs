//! How many deliveries each key has, and which key has most.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use tower_mq_delivery::Message;
use xxhash_rust::xxh3::xxh3_64;

/// The hash of a message's key.
pub(crate) fn hash(message: &Message) -> Option<u64> {
    message.key().map(|key| xxh3_64(key))
}

/// Counts deliveries by the hash of their key.
///
/// Exact, and as large as the window at most: a key that has no delivery is forgotten. The table keeps its room, so it
/// allocates nothing once it has seen the window full.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    held: HashMap<u64, u32, BuildHasherDefault<AsIs>>,
    /// How many keys have exactly as many deliveries as the index says: the largest is found without a search.
    having: Vec<u32>,
    largest: u32,
    all: u64,
}

impl Keys {
    /// One more, with this key.
    pub(crate) fn take(&mut self, key: Option<u64>) {
        self.all += 1;
        let Some(key) = key else { return };
        let held = self.held.entry(key).or_default();
        let before = *held;
        *held += 1;
        if let Some(having) = self.having.get_mut(before as usize).filter(|_| before > 0) {
            *having -= 1;
        }
        let now = before as usize + 1;
        if self.having.len() <= now {
            self.having.resize(now + 1, 0);
        }
        self.having[now] += 1;
        self.largest = self.largest.max(before + 1);
    }

    /// One less, with this key.
    pub(crate) fn give_back(&mut self, key: Option<u64>) {
        self.all -= 1;
        let Some(key) = key else { return };
        let Some(held) = self.held.get_mut(&key) else { return };
        let before = *held as usize;
        *held -= 1;
        if *held == 0 {
            self.held.remove(&key);
        } else {
            self.having[before - 1] += 1;
        }
        self.having[before] -= 1;
        // It was among the largest, and is so with one less if no other is as large.
        if self.having[self.largest as usize] == 0 {
            self.largest -= 1;
        }
    }

    /// The largest key's share.
    pub(crate) fn largest_share(&self) -> f64 {
        if self.all == 0 { 0.0 } else { f64::from(self.largest) / self.all as f64 }
    }
}

/// Takes a hash for what it is.
#[derive(Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_share_is_that_of_the_largest_key(moves in proptest::collection::vec((any::<bool>(), 0..6_u64), 1..400)) {
            let (mut keys, mut model) = (Keys::default(), Vec::new());
            for (take, key) in moves {
                let key = (key > 0).then_some(key);
                if take || model.is_empty() {
                    keys.take(key);
                    model.push(key);
                } else {
                    let gone = model.swap_remove(key.unwrap_or(0) as usize % model.len());
                    keys.give_back(gone);
                }
                let mut counts = HashMap::new();
                model.iter().flatten().for_each(|key| *counts.entry(key).or_insert(0) += 1);
                let largest = f64::from(counts.values().copied().max().unwrap_or(0));
                let share = if model.is_empty() { 0.0 } else { largest / model.len() as f64 };
                prop_assert_eq!(keys.largest_share(), share);
                prop_assert_eq!(keys.held.len(), counts.len());
            }
        }
    }

    #[test]
    fn the_table_does_not_grow_with_the_number_of_keys_ever_seen() {
        let mut keys = Keys::default();
        let mut room = 0;
        for key in 0..100_000 {
            keys.take(Some(xxh3_64(&u64::to_le_bytes(key))));
            if key >= 64 {
                keys.give_back(Some(xxh3_64(&u64::to_le_bytes(key - 64))));
            }
            if key == 1_000 {
                room = keys.held.capacity();
            }
        }
        assert_eq!((keys.held.len(), keys.held.capacity()), (64, room));
    }
}
