//! The messages of one queue, in their order.

use std::collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry};

use bytes::Bytes;
use tokio::time::Instant;
use tower_mq_delivery::Message;

use super::letter::Letter;

/// What is in a queue and not handed out, in the order of the queue.
#[derive(Debug, Default)]
pub(super) struct Line {
    next: u64,
    /// Never handed out.
    fresh: VecDeque<Letter>,
    /// Handed out before and given back, or at the head of its group at last: by its place in the order.
    returned: BTreeMap<u64, Letter>,
    /// Not before this time.
    delayed: BTreeMap<(Instant, u64), Letter>,
    groups: Option<HashMap<Bytes, Group>>,
    /// How many wait behind another of their group.
    behind: usize,
}

/// The messages of one key. It is forgotten when the last of them is done with.
#[derive(Debug, Default)]
struct Group {
    /// How many of them are in the line, handed out, or delayed: one, unless groups began while more were out.
    ahead: usize,
    /// The others, in order.
    behind: VecDeque<Letter>,
}

impl Line {
    /// Stores a message behind all others.
    pub(super) fn push(&mut self, message: Message) {
        let letter = Letter { sequence: self.next, failures: 0, returns: 0, message };
        self.next += 1;
        self.enter(letter);
    }

    fn enter(&mut self, letter: Letter) {
        if let (Some(groups), Some(key)) = (&mut self.groups, letter.message.key()) {
            match groups.entry(key.clone()) {
                Entry::Occupied(mut group) => {
                    self.behind += 1;
                    return group.get_mut().behind.push_back(letter);
                }
                Entry::Vacant(group) => group.insert(Group::default()).ahead = 1,
            }
        }
        self.fresh.push_back(letter);
    }

    /// From now on, a key's messages are handed out one after the other. `out`: the keys of those that are handed out.
    pub(super) fn group(&mut self, out: impl Iterator<Item = Bytes>) {
        if self.groups.is_some() {
            return;
        }
        let mut groups = HashMap::<Bytes, Group>::new();
        for key in out.chain(self.delayed.values().filter_map(Letter::key)) {
            groups.entry(key).or_default().ahead += 1;
        }
        self.groups = Some(groups);
        let (returned, fresh) = (std::mem::take(&mut self.returned), std::mem::take(&mut self.fresh));
        for letter in returned.into_values().chain(fresh) {
            self.enter(letter);
        }
    }

    pub(super) fn is_grouped(&self) -> bool {
        self.groups.is_some()
    }

    /// The first message that may be handed out.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Letter> {
        match self.returned.is_empty() {
            true => self.fresh.pop_front(),
            false => self.pop_first(),
        }
    }

    #[inline(never)]
    fn pop_first(&mut self) -> Option<Letter> {
        let first = self.returned.first_entry()?;
        match self.fresh.front() {
            Some(fresh) if fresh.sequence < *first.key() => self.fresh.pop_front(),
            _ => Some(first.remove()),
        }
    }

    /// Whether there is a message that may be handed out.
    pub(super) fn is_ready(&self) -> bool {
        !self.fresh.is_empty() || !self.returned.is_empty()
    }

    /// A message that was handed out is done with: the next of its group may follow.
    #[inline]
    pub(super) fn done(&mut self, letter: &Letter) {
        if self.groups.is_some() {
            self.follow(letter);
        }
    }

    #[inline(never)]
    fn follow(&mut self, letter: &Letter) {
        let (Some(groups), Some(key)) = (&mut self.groups, letter.message.key()) else { return };
        let Some(group) = groups.get_mut(key) else { return };
        group.ahead -= 1;
        if group.ahead > 0 {
            return;
        }
        match group.behind.pop_front() {
            Some(next) => {
                group.ahead = 1;
                self.behind -= 1;
                self.returned.insert(next.sequence, next);
            }
            None => {
                groups.remove(key);
            }
        }
    }

    /// A message that was handed out comes back to its place.
    pub(super) fn put_back(&mut self, mut letter: Letter) {
        letter.returns = letter.returns.saturating_add(1);
        self.returned.insert(letter.sequence, letter);
    }

    /// A message that was handed out comes back to its place, not before `until`. Its group waits for it.
    pub(super) fn put_off(&mut self, mut letter: Letter, until: Instant) {
        letter.returns = letter.returns.saturating_add(1);
        self.delayed.insert((until, letter.sequence), letter);
    }

    /// When the next delay is over.
    pub(super) fn due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((until, _), _)| *until)
    }

    /// Puts those whose delay is over back to their places.
    #[inline]
    pub(super) fn wake_delayed(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let letter = first.remove();
            self.returned.insert(letter.sequence, letter);
        }
    }

    /// How many are here and not delayed, those behind another of their group included.
    pub(super) fn ready(&self) -> usize {
        self.fresh.len() + self.returned.len() + self.behind
    }

    /// How many keys have messages here, or handed out.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.groups.as_ref().map_or(0, HashMap::len)
    }

    /// How many wait for a delay to be over.
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }
}
