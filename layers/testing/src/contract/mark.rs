//! The messages of the check: each one is told from the others, and from a copy that is kept.

use std::{
    borrow::Cow,
    sync::{Arc, Weak},
};

use tower_mq_delivery::{Message, Properties, Value};

/// What the messages of the check have for a broker's properties. It lives as long as the message, and no copy of the
/// payload keeps it alive.
#[derive(Debug)]
pub(super) struct Mark {
    number: u64,
    id: Option<String>,
    _alive: Arc<()>,
}

impl Mark {
    /// And what tells whether somebody holds the message.
    pub(super) fn new(number: u64, id: Option<String>) -> (Self, Weak<()>) {
        let alive = Arc::new(());
        let held = Arc::downgrade(&alive);
        (Self { number, id, _alive: alive }, held)
    }

    /// The number of this message; `None`: the layer made it.
    pub(super) fn of(message: &Message) -> Option<u64> {
        message.native::<Self>().map(|mark| mark.number)
    }
}

impl Properties for Mark {
    fn id(&self) -> Option<Cow<'_, str>> {
        self.id.as_deref().map(Cow::Borrowed)
    }

    fn header(&self, _: &str) -> Option<Value<'_>> {
        None
    }

    fn headers(&self) -> Box<dyn Iterator<Item = (&str, Value<'_>)> + '_> {
        Box::new(std::iter::empty())
    }
}
