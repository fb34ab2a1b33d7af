//! Several messages that are handled together.

use std::{fmt, ops::Deref};

use crate::{Carry, Message};

/// Several of something that are handled together, in order. Never empty when a batch layer made it.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch<T> {
    members: Vec<T>,
    closed_by: ClosedBy,
}

/// Why a batch was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClosedBy {
    /// It was full.
    #[default]
    Size,
    /// Its payloads were as long together as they may be.
    Bytes,
    /// Its first member had waited long enough.
    Wait,
    /// Its source had nothing more to give at the moment.
    Idle,
    /// It held the whole window: nothing more could have come.
    Window,
    /// Too many others were open beside it, and it was the oldest.
    Groups,
    /// The stack is about to end.
    Drain,
    /// The generation of its members has ended. No handler sees this: such members are given back.
    Generation,
}

impl<T> Batch<T> {
    /// A batch of these members.
    pub fn new(members: Vec<T>, closed_by: ClosedBy) -> Self {
        Self { members, closed_by }
    }

    /// Why it was closed.
    pub fn closed_by(&self) -> ClosedBy {
        self.closed_by
    }

    /// The members.
    pub fn into_inner(self) -> Vec<T> {
        self.members
    }

    /// The members, to be changed in place.
    pub(crate) fn members_mut(&mut self) -> &mut Vec<T> {
        &mut self.members
    }
}

impl<T> From<Vec<T>> for Batch<T> {
    fn from(members: Vec<T>) -> Self {
        Self::new(members, ClosedBy::default())
    }
}

impl<T> Deref for Batch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.members
    }
}

impl<T> IntoIterator for Batch<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Batch<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("members", &self.members).field("closed_by", &self.closed_by).finish()
    }
}

impl Carry for Batch<Message> {
    fn messages(&self) -> &[Message] {
        self
    }
}
