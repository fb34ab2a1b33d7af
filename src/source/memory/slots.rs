//! Places with a number each, used again when they are free.

#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, value: T) -> usize {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index)
        {
            *slot = Some(value);
            return index;
        }
        self.slots.push(Some(value));
        self.slots.len() - 1
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
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
        self.free.clear();
        std::mem::take(&mut self.slots).into_iter().flatten()
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
