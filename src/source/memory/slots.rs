//! Places with a number each, used again when they are free.

#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot; the length of `slots`: there is none.
    free: usize,
    full: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Full(T),
    /// With the next free one.
    Free(usize),
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: 0, full: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.full
    }

    #[inline]
    pub(super) fn insert(&mut self, value: T) -> usize {
        let index = self.free;
        match self.slots.get_mut(index) {
            Some(slot) => {
                if let Slot::Free(next) = std::mem::replace(slot, Slot::Full(value)) {
                    self.free = next;
                }
            }
            None => {
                self.slots.push(Slot::Full(value));
                self.free = self.slots.len();
            }
        }
        self.full += 1;
        index
    }

    #[inline]
    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let slot = self.slots.get_mut(index)?;
        match std::mem::replace(slot, Slot::Free(self.free)) {
            Slot::Full(value) => {
                self.free = index;
                self.full -= 1;
                Some(value)
            }
            free => {
                *slot = free;
                None
            }
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self.slots.get_mut(index)? {
            Slot::Full(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Full(value) => Some(value),
            Slot::Free(_) => None,
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Full(value) => Some(value),
            Slot::Free(_) => None,
        })
    }

    /// Takes out those that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for index in 0..self.slots.len() {
            if self.get_mut(index).is_some_and(|value| !keep(value)) {
                self.remove(index);
            }
        }
    }

    /// Takes out everything.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        (self.free, self.full) = (0, 0);
        std::mem::take(&mut self.slots).into_iter().filter_map(|slot| match slot {
            Slot::Full(value) => Some(value),
            Slot::Free(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_given_out_once() {
        let mut slots = Slots::new();
        let [a, b] = [slots.insert('a'), slots.insert('b')];
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!(slots.remove(a), None);
        let c = slots.insert('c');
        assert_eq!((c, slots.len()), (a, 2));
        let d = slots.insert('d');
        assert!(d != b && d != c);
        assert_eq!(slots.iter().copied().collect::<String>(), "cbd");
        assert_eq!(slots.drain().count(), 3);
        assert_eq!((slots.insert('e'), slots.len()), (0, 1));
    }
}
