//! A doubly linked list over the places of a slab: no allocation after the first, every step O(1).

const NONE: u32 = u32::MAX;

/// Some of the places of a slab, in the order in which they were pushed.
#[derive(Debug)]
pub(super) struct Chain {
    links: Box<[Link]>,
    first: u32,
    last: u32,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

impl Chain {
    /// An empty chain over this many places.
    pub(super) fn new(places: usize) -> Self {
        let links = vec![Link { before: NONE, after: NONE }; places].into_boxed_slice();
        Self { links, first: NONE, last: NONE, length: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    pub(super) fn before(&self, place: u32) -> Option<u32> {
        let before = self.links[place as usize].before;
        (before != NONE).then_some(before)
    }

    pub(super) fn after(&self, place: u32) -> Option<u32> {
        let after = self.links[place as usize].after;
        (after != NONE).then_some(after)
    }

    /// Puts a place that is not in the chain at its end.
    pub(super) fn push(&mut self, place: u32) {
        self.links[place as usize] = Link { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = place,
            last => self.links[last as usize].after = place,
        }
        self.last = place;
        self.length += 1;
    }

    /// Takes out a place that is in the chain.
    pub(super) fn remove(&mut self, place: u32) {
        let Link { before, after } = self.links[place as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
        self.length -= 1;
    }
}
