//! Who waits behind whom: one queue of places for each key.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, Hasher, RandomState},
};

/// No place.
const NONE: u32 = u32::MAX;

/// Queues of places, by key. A key has a queue while something of it waits or runs, so there are never more queues
/// than places, whatever the number of keys; nothing is allocated after the beginning.
pub(crate) struct Queues {
    index: Index,
    /// By place: who comes after it in its queue.
    next: Box<[u32]>,
}

enum Index {
    /// Keys are the numbers of lanes.
    Lanes(Box<[Option<Queue>]>),
    /// Keys are hashes.
    Keys(HashMap<u64, Queue, Seeded>),
}

#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    waiting: u32,
    /// Who holds the key; 0: nobody.
    holder: u64,
}

impl Queues {
    /// Queues for that many lanes, numbered from 0.
    pub(crate) fn of_lanes(lanes: usize, places: u32) -> Self {
        Self::new(Index::Lanes(vec![None; lanes].into()), places)
    }

    /// Queues for any keys.
    pub(crate) fn of_keys(places: u32) -> Self {
        // Twice the room that is needed: then a map that is full of graves is swept in place, and never grows.
        let index = HashMap::with_capacity_and_hasher(2 * places as usize, Seeded::new());
        Self::new(Index::Keys(index), places)
    }

    fn new(index: Index, places: u32) -> Self {
        Self { index, next: vec![NONE; places as usize].into() }
    }

    /// Puts the place at the end of the key's queue. `true`: nothing of the key waits or runs, so it may run.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: u64, place: u32) -> bool {
        self.next[place as usize] = NONE;
        let new = Queue { head: place, tail: place, waiting: 1, holder: 0 };
        let queue = match &mut self.index {
            Index::Lanes(lanes) => match &mut lanes[key as usize] {
                Some(queue) => queue,
                vacant => {
                    *vacant = Some(new);
                    return true;
                }
            },
            Index::Keys(keys) => match keys.entry(key) {
                Entry::Occupied(queue) => queue.into_mut(),
                Entry::Vacant(vacant) => {
                    vacant.insert(new);
                    return true;
                }
            },
        };
        if queue.head == NONE {
            queue.head = place;
        } else {
            self.next[queue.tail as usize] = place;
        }
        queue.tail = place;
        queue.waiting += 1;
        false
    }

    /// Takes the first place of the key's queue; the key is held until it is [finished](Self::finish).
    #[inline]
    pub(crate) fn take(&mut self, key: u64, holder: u64) -> Option<u32> {
        let queue = match &mut self.index {
            Index::Lanes(lanes) => lanes[key as usize].as_mut()?,
            Index::Keys(keys) => keys.get_mut(&key)?,
        };
        queue.holder = holder;
        let place = queue.head;
        queue.head = *self.next.get(place as usize)?;
        queue.waiting -= 1;
        Some(place)
    }

    /// What was taken of the key is done with. `true`: more of it waits, so it may run.
    #[inline]
    pub(crate) fn finish(&mut self, key: u64) -> bool {
        match &mut self.index {
            Index::Lanes(lanes) => {
                let lane = &mut lanes[key as usize];
                let waits = lane.as_mut().is_some_and(Queue::let_go);
                if !waits {
                    *lane = None;
                }
                waits
            }
            Index::Keys(keys) => match keys.entry(key) {
                Entry::Occupied(mut queue) => {
                    let waits = queue.get_mut().let_go();
                    if !waits {
                        queue.remove();
                    }
                    waits
                }
                Entry::Vacant(_) => false,
            },
        }
    }

    /// How many wait in the queue of this lane.
    pub(crate) fn waiting(&self, lane: u64) -> usize {
        match &self.index {
            Index::Lanes(lanes) => lanes[lane as usize].map_or(0, |queue| queue.waiting as usize),
            Index::Keys(_) => 0,
        }
    }

    /// Nothing waits or runs.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.index {
            Index::Lanes(lanes) => lanes.iter().all(Option::is_none),
            Index::Keys(keys) => keys.is_empty(),
        }
    }

    /// The keys that somebody holds. For the one who cleans up after him.
    pub(crate) fn held_by(&self, holder: u64) -> Vec<u64> {
        let Index::Keys(keys) = &self.index else { return Vec::new() };
        keys.iter().filter(|(_, queue)| queue.holder == holder).map(|(key, _)| *key).collect()
    }
}

impl Queue {
    /// Nobody holds it any more. `true`: somebody waits in it.
    #[inline]
    fn let_go(&mut self) -> bool {
        self.holder = 0;
        self.head != NONE
    }
}

/// Hashes what is a hash already. The seed of each process is another, so that nobody can choose keys that crowd one
/// corner of the table.
struct Seeded(u64);

impl Seeded {
    fn new() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for Seeded {
    type Hasher = Self;

    #[inline]
    fn build_hasher(&self) -> Self {
        Self(self.0)
    }
}

impl Hasher for Seeded {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    // Never reached: keys are `u64`.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        let mixed = u128::from(self.0 ^ hash) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }
}

#[cfg(all(test, not(tower_mq_loom)))]
mod tests {
    use super::*;

    fn in_order(mut queues: Queues) {
        assert!(queues.push(1, 0));
        assert!(!queues.push(1, 1), "the key waits already");
        assert!(queues.push(2, 2));
        assert_eq!(queues.take(1, 7), Some(0));
        assert!(!queues.push(1, 0), "a place comes back while its key is held");
        assert!(queues.finish(1));
        assert_eq!(queues.take(1, 7), Some(1));
        assert!(queues.finish(1));
        assert_eq!(queues.take(1, 7), Some(0));
        assert!(!queues.push(1, 1), "the key runs");
        assert!(queues.finish(1));
        assert_eq!(queues.take(1, 7), Some(1));
        assert!(!queues.finish(1));
        assert_eq!(queues.take(2, 8), Some(2));
        assert!(!queues.is_empty());
        assert!(!queues.finish(2));
        assert!(queues.is_empty());
    }

    #[test]
    fn places_leave_in_the_order_of_their_key() {
        in_order(Queues::of_keys(3));
        in_order(Queues::of_lanes(3, 3));
    }

    #[test]
    fn the_map_never_grows() {
        let mut queues = Queues::of_keys(64);
        let capacity = |queues: &Queues| match &queues.index {
            Index::Keys(keys) => keys.capacity(),
            Index::Lanes(_) => 0,
        };
        let before = capacity(&queues);
        for round in 0..10_000u64 {
            let keys = (0..64).map(|place| (round * 64 + place).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            for (key, place) in keys.clone().zip(0..) {
                assert!(queues.push(key, place));
            }
            for key in keys {
                assert!(queues.take(key, 1).is_some());
                assert!(!queues.finish(key));
            }
        }
        // Graves that were not swept yet count as room that is gone.
        assert!(capacity(&queues) <= before);
    }

    #[test]
    fn held_keys_are_found() {
        let mut queues = Queues::of_keys(3);
        for (key, place) in [(10, 0), (20, 1), (30, 2)] {
            queues.push(key, place);
        }
        queues.take(10, 1);
        queues.take(20, 2);
        assert_eq!(queues.held_by(1), [10]);
        queues.push(10, 0);
        assert!(queues.finish(10));
        assert!(queues.held_by(1).is_empty(), "it waits again, and nobody holds it");
    }
}
