//! What all clones of a message share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64},
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{Generation, Properties};

/// What every message has.
pub(crate) struct Head {
    pub(crate) payload: Bytes,
    pub(crate) key: Option<Bytes>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) lease: Option<Instant>,
    pub(crate) attempt: Option<u32>,
    pub(crate) again: AtomicU32,
    /// Milliseconds since 1970, 0: it has not failed.
    pub(crate) failed: AtomicU64,
    pub(crate) redelivered: bool,
    /// Its copy is among the dead letters.
    pub(crate) dead: AtomicBool,
    /// Of a message that is delivered once more, while somebody still holds the first: that first one.
    pub(crate) original: Option<Arc<Body>>,
}

/// A message with its broker's properties, in one allocation.
pub(crate) struct Body<P: ?Sized = dyn Properties> {
    pub(crate) head: Head,
    /// Where `head` has an original, that one's properties count.
    pub(crate) properties: P,
}

impl Body {
    pub(crate) fn properties(&self) -> &dyn Properties {
        match &self.head.original {
            Some(original) => &original.properties,
            None => &self.properties,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Capabilities, Generation, Message, Origin, Plain};

    use super::*;

    fn generation() -> Arc<Generation> {
        Generation::first(Arc::new(Origin::new("orders", "test", 1, Capabilities::unknown())))
    }

    #[test]
    fn a_message_that_nobody_holds_is_delivered_again_as_it_is() {
        let mut kept = Message::builder("payload").id("7").build();
        let generation = generation();
        let first = kept.deliver(&generation, 1, false);
        let address = first.payload().as_ptr();
        first.again();
        first.set_dead_lettered();
        assert_eq!((first.origin().name(), first.attempt(), first.redelivered()), ("orders", Some(1), false));
        drop(first);
        let second = kept.deliver(&generation, 2, true);
        assert_eq!((second.attempt(), second.redelivered(), second.tries()), (Some(2), true, 1));
        assert!(!second.is_dead_lettered());
        assert_eq!((second.payload().as_ptr(), second.id().as_deref()), (address, Some("7")));
    }

    #[test]
    fn a_message_that_somebody_holds_does_not_change_when_it_is_delivered_again() {
        let mut kept = Message::builder("payload").id("7").build();
        let (first, second) = (kept.deliver(&generation(), 1, false), kept.deliver(&generation(), 2, true));
        assert_eq!((first.attempt(), first.redelivered()), (Some(1), false));
        assert_eq!((second.attempt(), second.redelivered()), (Some(2), true));
        assert_eq!((second.id().as_deref(), second.payload()), (Some("7"), first.payload()));
        assert!(second.native::<Plain>().is_some());
    }

    #[test]
    fn attempts_are_counted_from_one() {
        let mut kept = Message::new("payload");
        let (first, second) = (kept.deliver(&generation(), 0, false), kept.deliver(&generation(), 0, false));
        assert_eq!((first.attempt(), second.attempt()), (Some(1), Some(1)));
    }

    #[test]
    fn a_message_that_is_held_and_delivered_for_ever_does_not_grow() {
        let mut message = Message::builder("payload").id("7").build();
        let original = Arc::downgrade(&message.body);
        let mut held = Vec::new();
        for attempt in 1..4 {
            held.push(message.clone());
            message = message.deliver(&generation(), attempt, true);
        }
        let borrowed = message.body.head.original.as_ref().expect("a copy");
        assert!(Arc::ptr_eq(borrowed, &original.upgrade().expect("held")));
    }
}
