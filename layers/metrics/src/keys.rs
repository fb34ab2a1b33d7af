//! How many deliveries each key has, and which key has most.

use std::num::NonZeroU64;

use tower_mq_delivery::Message;
use xxhash_rust::xxh3::xxh3_64;

/// The hash of a message's key. Zero is taken for one, which keeps what holds it small.
#[inline]
pub(crate) fn hash(message: &Message) -> Option<NonZeroU64> {
    message.key().map(|key| NonZeroU64::new(xxh3_64(key)).unwrap_or(NonZeroU64::MIN))
}

/// Counts deliveries by the hash of their key.
///
/// Exact, and as large as the window at most: a key that has no delivery is forgotten. The table keeps its room, so it
/// allocates nothing once it has seen the window full.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// By hash, and where that place is taken, in one of the next ones. Half of them are free.
    slots: Box<[Slot]>,
    used: usize,
    /// How many keys have exactly as many deliveries as the index says: the largest is found without a search.
    having: Vec<u32>,
    largest: u32,
    all: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    /// 0: the slot is free.
    deliveries: u32,
}

impl Keys {
    /// One more, with this key.
    #[inline]
    pub(crate) fn take(&mut self, key: Option<NonZeroU64>) {
        self.all += 1;
        let Some(key) = key.map(NonZeroU64::get) else { return };
        if self.used * 2 >= self.slots.len() {
            self.grow();
        }
        let place = self.place(key);
        let slot = &mut self.slots[place];
        let before = slot.deliveries;
        *slot = Slot { key, deliveries: before + 1 };
        if before == 0 {
            self.used += 1;
        } else {
            self.having[before as usize] -= 1;
        }
        let now = before as usize + 1;
        if self.having.len() <= now {
            self.having.resize(now + 1, 0);
        }
        self.having[now] += 1;
        self.largest = self.largest.max(before + 1);
    }

    /// One less, with this key.
    #[inline]
    pub(crate) fn give_back(&mut self, key: Option<NonZeroU64>) {
        self.all -= 1;
        let Some(key) = key.map(NonZeroU64::get) else { return };
        let place = self.place(key);
        let slot = &mut self.slots[place];
        let before = slot.deliveries as usize;
        slot.deliveries -= 1;
        if before > 1 {
            self.having[before - 1] += 1;
        } else {
            self.forget(place);
        }
        self.having[before] -= 1;
        // It was among the largest, and is so with one less if no other is as large.
        if self.having[self.largest as usize] == 0 {
            self.largest -= 1;
        }
    }

    /// Those that were taken and not given back.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// The largest key's share of them.
    pub(crate) fn largest_share(&self) -> f64 {
        if self.all == 0 { 0.0 } else { f64::from(self.largest) / self.all as f64 }
    }

    /// Where this key is, or would be.
    #[inline]
    fn place(&self, key: u64) -> usize {
        let last = self.slots.len() - 1;
        let mut place = key as usize & last;
        while self.slots[place].deliveries > 0 && self.slots[place].key != key {
            place = (place + 1) & last;
        }
        place
    }

    /// Closes the gap, so that what comes behind it is found.
    #[inline]
    fn forget(&mut self, mut gap: usize) {
        self.used -= 1;
        let last = self.slots.len() - 1;
        let mut place = gap;
        loop {
            place = (place + 1) & last;
            let slot = self.slots[place];
            if slot.deliveries == 0 {
                return;
            }
            let wants = slot.key as usize & last;
            // It has come at least as far as from the gap.
            if place.wrapping_sub(wants) & last >= place.wrapping_sub(gap) & last {
                self.slots[gap] = slot;
                self.slots[place].deliveries = 0;
                gap = place;
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let room = (self.slots.len() * 2).max(32);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); room].into());
        for slot in old.into_iter().filter(|slot| slot.deliveries > 0) {
            let place = self.place(slot.key);
            self.slots[place] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Hashes of few keys, with their low bits alike or not, so that they come into each other's way.
    fn hashes() -> impl Strategy<Value = Option<NonZeroU64>> {
        let hashes = prop_oneof![
            Just(0),
            (0..6_u64).prop_map(|key| key << 60 | 32),
            (0..6_u64).prop_map(|key| key << 60 | 31),
            0..60_u64,
        ];
        hashes.prop_map(NonZeroU64::new)
    }

    proptest! {
        #[test]
        fn the_share_is_that_of_the_largest_key(
            moves in proptest::collection::vec((0..3_u8, hashes(), any::<usize>()), 1..250),
        ) {
            let (mut keys, mut model) = (Keys::default(), Vec::new());
            for (take, key, which) in moves {
                if take > 0 || model.is_empty() {
                    keys.take(key);
                    model.push(key);
                } else {
                    keys.give_back(model.swap_remove(which % model.len()));
                }
                let mut counts = HashMap::new();
                model.iter().flatten().for_each(|key| *counts.entry(*key).or_insert(0_u32) += 1);
                let largest = f64::from(counts.values().copied().max().unwrap_or(0));
                let share = if model.is_empty() { 0.0 } else { largest / model.len() as f64 };
                prop_assert_eq!(keys.largest_share(), share);
                prop_assert_eq!((keys.used, keys.all()), (counts.len(), model.len() as u64));
                for (key, count) in counts {
                    prop_assert_eq!(keys.slots[keys.place(key.get())].deliveries, count);
                }
            }
        }
    }

    #[test]
    fn the_table_does_not_grow_with_the_number_of_keys_ever_seen() {
        let (mut keys, mut room) = (Keys::default(), 0);
        let hash = |key: u64| super::hash(&Message::builder("").key(key.to_le_bytes().to_vec()).build());
        for key in 0..100_000 {
            keys.take(hash(key));
            if key >= 64 {
                keys.give_back(hash(key - 64));
            }
            if key == 100 {
                room = keys.slots.len();
            }
        }
        assert_eq!((keys.used, keys.slots.len(), room), (64, 256, 256));
    }
}
