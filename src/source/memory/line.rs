//! The messages of one queue, in their order.

use std::collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry};

use bytes::Bytes;
use slab::Slab;
use tokio::time::Instant;
use tower_mq_delivery::Message;

use super::letter::Letter;

/// The letters of a queue, and the order of those that are not handed out.
///
/// A letter stays in one place from the publisher to its last settlement; what moves is its number there.
#[derive(Debug, Default)]
pub(super) struct Line {
    next: u64,
    letters: Slab<Letter>,
    /// Never handed out.
    fresh: VecDeque<usize>,
    /// Handed out before and given back, or at the head of its group at last: by its place in the order.
    returned: BTreeMap<u64, usize>,
    /// Not before this time.
    delayed: BTreeMap<(Instant, u64), usize>,
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
    behind: VecDeque<usize>,
}

impl Line {
    /// Stores a message behind all others.
    pub(super) fn push(&mut self, message: Message) {
        let letter = Letter { sequence: self.next, failures: 0, returns: 0, holder: None, message };
        self.next += 1;
        let number = self.letters.insert(letter);
        self.enter(number);
    }

    fn enter(&mut self, number: usize) {
        if let (Some(groups), Some(key)) = (&mut self.groups, self.letters[number].message.key()) {
            match groups.entry(key.clone()) {
                Entry::Occupied(mut group) => {
                    self.behind += 1;
                    return group.get_mut().behind.push_back(number);
                }
                Entry::Vacant(group) => group.insert(Group::default()).ahead = 1,
            }
        }
        self.fresh.push_back(number);
    }

    /// From now on, a key's messages are handed out one after the other.
    pub(super) fn group(&mut self) {
        if self.groups.is_some() {
            return;
        }
        let mut groups = HashMap::<Bytes, Group>::new();
        let out = self.letters.iter().filter(|(_, letter)| letter.holder.is_some()).map(|(number, _)| number);
        for number in out.chain(self.delayed.values().copied()) {
            if let Some(key) = self.letters[number].message.key() {
                groups.entry(key.clone()).or_default().ahead += 1;
            }
        }
        self.groups = Some(groups);
        let (returned, fresh) = (std::mem::take(&mut self.returned), std::mem::take(&mut self.fresh));
        for number in returned.into_values().chain(fresh) {
            self.enter(number);
        }
    }

    pub(super) fn is_grouped(&self) -> bool {
        self.groups.is_some()
    }

    /// Hands out the first message that may be.
    #[inline(always)]
    pub(super) fn take(&mut self, holder: usize) -> Option<(usize, &mut Letter)> {
        let number = match self.returned.is_empty() {
            true => self.fresh.pop_front(),
            false => self.take_first(),
        }?;
        let letter = &mut self.letters[number];
        letter.holder = Some(holder);
        Some((number, letter))
    }

    #[inline(never)]
    fn take_first(&mut self) -> Option<usize> {
        let first = self.returned.first_entry()?;
        match self.fresh.front() {
            Some(fresh) if self.letters[*fresh].sequence < *first.key() => self.fresh.pop_front(),
            _ => Some(first.remove()),
        }
    }

    /// Whether there is a message that may be handed out.
    pub(super) fn is_ready(&self) -> bool {
        !self.fresh.is_empty() || !self.returned.is_empty()
    }

    /// A message that is handed out.
    pub(super) fn letter(&mut self, number: usize) -> &mut Letter {
        &mut self.letters[number]
    }

    /// A message that was handed out is done with: the next of its group may follow. `None`: it is not there.
    #[inline(always)]
    pub(super) fn remove(&mut self, number: usize) -> Option<Message> {
        let Letter { message, .. } = self.letters.try_remove(number)?;
        if self.groups.is_some() {
            self.follow(&message);
        }
        Some(message)
    }

    #[inline(never)]
    fn follow(&mut self, message: &Message) {
        let (Some(groups), Some(key)) = (&mut self.groups, message.key()) else { return };
        let Some(group) = groups.get_mut(key) else { return };
        group.ahead -= 1;
        if group.ahead > 0 {
            return;
        }
        match group.behind.pop_front() {
            Some(next) => {
                group.ahead = 1;
                self.behind -= 1;
                self.returned.insert(self.letters[next].sequence, next);
            }
            None => {
                groups.remove(key);
            }
        }
    }

    /// A message that was handed out comes back to its place.
    pub(super) fn put_back(&mut self, number: usize) {
        let sequence = self.letters[number].come_back();
        self.returned.insert(sequence, number);
    }

    /// All that this one holds comes back to its place.
    pub(super) fn put_back_all(&mut self, holder: usize) {
        for (number, letter) in &mut self.letters {
            if letter.holder == Some(holder) {
                self.returned.insert(letter.come_back(), number);
            }
        }
    }

    /// A message that was handed out comes back to its place, not before `until`. Its group waits for it.
    pub(super) fn put_off(&mut self, number: usize, until: Instant) {
        let sequence = self.letters[number].come_back();
        self.delayed.insert((until, sequence), number);
    }

    /// When the next delay is over.
    pub(super) fn due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((until, _), _)| *until)
    }

    /// Puts those whose delay is over back to their places.
    #[inline(always)]
    pub(super) fn wake_delayed(&mut self) {
        if !self.delayed.is_empty() {
            self.wake_due();
        }
    }

    #[inline(never)]
    fn wake_due(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let (_, sequence) = *first.key();
            self.returned.insert(sequence, first.remove());
        }
    }

    /// How many are here: in the line, delayed, and handed out.
    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }

    /// How many are here and not delayed or handed out, those behind another of their group included.
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
