//! Requests that carry messages.

use std::{fmt, ops::Deref};

use crate::{Delivery, Message};

/// A request that carries messages: a [`Delivery`], a [`Message`] or a [`Batch`] of messages.
#[diagnostic::on_unimplemented(
    message = "this layer needs a request that carries a message; `{Self}` does not",
    label = "expects `Delivery`, `Message` or `Batch<Message>`",
    note = "a layer outside this one replaced the request; put it inside, or keep the message in it"
)]
pub trait Carry {
    /// The messages: at least one.
    fn messages(&self) -> &[Message];
}

/// A request with exactly one message: what can be routed by its key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a single message, so it has no key to go by",
    label = "expects `Delivery` or `Message`",
    note = "put Partition outside Batch: each lane then gathers its own, ordered batches"
)]
pub trait CarryOne: Carry {
    /// The message.
    fn message(&self) -> &Message;
    /// The message, for those who put a turn into it.
    fn message_mut(&mut self) -> &mut Message;
}

impl Carry for Message {
    fn messages(&self) -> &[Message] {
        std::slice::from_ref(self)
    }
}

impl CarryOne for Message {
    fn message(&self) -> &Message {
        self
    }

    fn message_mut(&mut self) -> &mut Message {
        self
    }
}

impl Carry for Delivery {
    fn messages(&self) -> &[Message] {
        std::slice::from_ref(self.message())
    }
}

impl CarryOne for Delivery {
    fn message(&self) -> &Message {
        self.message()
    }

    fn message_mut(&mut self) -> &mut Message {
        self.message_mut()
    }
}

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
    /// Its first member had waited long enough.
    Wait,
    /// Its source had nothing more to give at the moment.
    Idle,
    /// It held the whole window: nothing more could have come.
    Window,
    /// The stack is about to end.
    Drain,
    /// The generation of its members has ended.
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
