//! The ids that a store knows.

use tokio::time::Instant;

use crate::Id;

/// Behind the last place.
const NONE: usize = usize::MAX;

/// Ids, each at a place of its own, where it stays: whoever has begun with one knows its place, and looks nothing up
/// when it ends.
///
/// They are found through chains of those whose hashes are alike, and those that are done are chained by age, too.
pub(super) struct Ids {
    places: Vec<Place>,
    /// Where each chain begins. They are a power of two, and at least as many as places.
    chains: Vec<usize>,
    vacant: usize,
    oldest: usize,
    newest: usize,
    running: usize,
    done: usize,
}

struct Place {
    id: Id,
    state: State,
    /// The next one in its chain.
    next: usize,
    /// Done: the next younger one. Vacant: the next vacant one.
    after: usize,
}

#[derive(Clone, Copy)]
enum State {
    Vacant,
    Running,
    /// Done, and remembered until then.
    Done(Instant),
}

impl Place {
    const fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }
}

impl Default for Ids {
    fn default() -> Self {
        let (places, chains) = (Vec::new(), Vec::new());
        Self { places, chains, vacant: NONE, oldest: NONE, newest: NONE, running: 0, done: 0 }
    }
}

impl Ids {
    pub(super) const fn len(&self) -> usize {
        self.running + self.done
    }

    pub(super) const fn done(&self) -> usize {
        self.done
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.places.capacity().max(self.chains.capacity())
    }

    /// Whether it is running; else it is done. `None`: it is new.
    #[inline]
    pub(super) fn find(&self, id: Id) -> Option<bool> {
        let mut at = *self.chains.get(self.chain(id))?;
        while let Some(place) = self.places.get(at) {
            if place.id == id {
                return Some(place.is_running());
            }
            at = place.next;
        }
        None
    }

    /// Adds one that was not found: it is running at this place.
    #[inline]
    pub(super) fn begin(&mut self, id: Id) -> usize {
        if self.vacant == NONE {
            self.grow();
        }
        let (at, chain) = (self.vacant, self.chain(id));
        let place = &mut self.places[at];
        self.vacant = place.after;
        self.running += 1;
        let next = std::mem::replace(&mut self.chains[chain], at);
        *place = Place { id, state: State::Running, next, after: NONE };
        at
    }

    /// It is done, and remembered until then.
    #[inline]
    pub(super) fn finish(&mut self, id: Id, at: usize, until: Instant) {
        let Some(place) = self.running_at(id, at) else { return };
        place.state = State::Done(until);
        match self.done {
            0 => self.oldest = at,
            _ => self.places[self.newest].after = at,
        }
        self.newest = at;
        self.running -= 1;
        self.done += 1;
    }

    /// It is new again.
    pub(super) fn forget(&mut self, id: Id, at: usize) {
        if self.running_at(id, at).is_some() {
            self.running -= 1;
            self.vacate(at);
        }
    }

    /// `None`: the lease is from another store.
    #[inline]
    fn running_at(&mut self, id: Id, at: usize) -> Option<&mut Place> {
        self.places.get_mut(at).filter(|place| place.id == id && place.is_running())
    }

    /// Forgets those whose time is over. All are kept for the same time, so the oldest are the first ones.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) {
        if self.is_oldest_over(now) {
            self.forget_until(now);
        }
    }

    #[inline]
    fn is_oldest_over(&self, now: Instant) -> bool {
        matches!(self.places.get(self.oldest), Some(Place { state: State::Done(until), .. }) if *until <= now)
    }

    // Apart, as there is mostly nothing to do.
    #[inline(never)]
    fn forget_until(&mut self, now: Instant) {
        while self.is_oldest_over(now) {
            self.forget_oldest();
        }
    }

    /// Forgets the one that is done for the longest. There is one.
    #[inline]
    pub(super) fn forget_oldest(&mut self) {
        let at = self.oldest;
        self.oldest = self.places[at].after;
        self.done -= 1;
        self.vacate(at);
    }

    #[inline]
    fn chain(&self, id: Id) -> usize {
        id.low() as usize & self.chains.len().wrapping_sub(1)
    }

    /// Takes it out of its chain.
    #[inline]
    fn vacate(&mut self, at: usize) {
        let Place { id, next, .. } = self.places[at];
        let chain = self.chain(id);
        let mut link = &mut self.chains[chain];
        while *link != at {
            let before = *link;
            link = &mut self.places[before].next;
        }
        *link = next;
        let place = &mut self.places[at];
        (place.state, place.after) = (State::Vacant, self.vacant);
        self.vacant = at;
    }

    /// Makes a place, when none is vacant.
    #[cold]
    fn grow(&mut self) {
        if self.places.len() == self.chains.len() {
            self.chains = vec![NONE; (2 * self.places.len()).max(16)];
            for at in 0..self.places.len() {
                let chain = self.chain(self.places[at].id);
                self.places[at].next = std::mem::replace(&mut self.chains[chain], at);
            }
        }
        self.vacant = self.places.len();
        self.places.push(Place { id: Id::of(""), state: State::Vacant, next: NONE, after: NONE });
    }
}
