//! Requests that carry messages.

use crate::{Delivery, Message};

/// A request that carries messages: a [`Delivery`], a [`Message`] or a [`Batch`](crate::Batch) of messages.
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
