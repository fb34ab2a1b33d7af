//! How a message is made.

use std::{
    borrow::Cow,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64},
    },
    time::SystemTime,
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    Capabilities, Generation, Message, Origin, Plain, Properties, Value,
    body::{Body, Head},
};

/// Builds a [`Message`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MessageBuilder<P = Plain> {
    payload: Bytes,
    key: Option<Bytes>,
    generation: Option<Arc<Generation>>,
    lease: Option<Instant>,
    attempt: Option<u32>,
    redelivered: bool,
    properties: P,
}

impl<P: Properties> MessageBuilder<P> {
    pub(crate) fn new(payload: Bytes, generation: Option<Arc<Generation>>, properties: P) -> Self {
        Self { payload, key: None, generation, lease: None, attempt: None, redelivered: false, properties }
    }

    /// The key whose messages are in order.
    pub fn key(self, key: impl Into<Bytes>) -> Self {
        self.maybe_key(Some(key))
    }

    /// The key, if there is one.
    pub fn maybe_key(mut self, key: Option<impl Into<Bytes>>) -> Self {
        self.key = key.map(Into::into);
        self
    }

    /// Which attempt this is, from 1. Unset: nobody knows.
    pub fn attempt(self, attempt: u32) -> Self {
        self.maybe_attempt(Some(attempt))
    }

    /// Which attempt this is, if somebody knows.
    pub fn maybe_attempt(mut self, attempt: Option<u32>) -> Self {
        self.attempt = attempt.map(|n| n.max(1));
        self
    }

    /// Whether it was delivered before.
    pub fn redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// Until when the broker keeps it locked for us.
    pub fn lease(mut self, until: Instant) -> Self {
        self.lease = Some(until);
        self
    }

    /// The generation it is taken in. Unset: that of an unnamed source, which never ends.
    pub fn generation(mut self, generation: Arc<Generation>) -> Self {
        self.generation = Some(generation);
        self
    }

    /// The message.
    pub fn build(self) -> Message {
        let head = Head {
            payload: self.payload,
            key: self.key,
            generation: self.generation.unwrap_or_else(|| DETACHED.clone()),
            lease: self.lease,
            attempt: self.attempt,
            again: AtomicU32::new(0),
            failed: AtomicU64::new(0),
            redelivered: self.redelivered,
            dead: AtomicBool::new(false),
            original: None,
        };
        Message::of(Arc::new(Body { head, properties: self.properties }))
    }
}

impl MessageBuilder {
    /// The message's id.
    pub fn id(mut self, id: impl Into<Cow<'static, str>>) -> Self {
        self.properties.given().id = Some(id.into());
        self
    }

    /// The id of the message that this one answers.
    pub fn correlation_id(mut self, id: impl Into<Cow<'static, str>>) -> Self {
        self.properties.given().correlation_id = Some(id.into());
        self
    }

    /// Where an answer is expected.
    pub fn reply_to(mut self, destination: impl Into<Cow<'static, str>>) -> Self {
        self.properties.given().reply_to = Some(destination.into());
        self
    }

    /// The payload's media type.
    pub fn content_type(mut self, media_type: impl Into<Cow<'static, str>>) -> Self {
        self.properties.given().content_type = Some(media_type.into());
        self
    }

    /// When the message was made.
    pub fn timestamp(mut self, at: SystemTime) -> Self {
        self.properties.given().timestamp = Some(at);
        self
    }

    /// The queue or topic it was taken from. Unset: the source's name.
    pub fn destination(mut self, destination: impl Into<Cow<'static, str>>) -> Self {
        self.properties.given().destination = Some(destination.into());
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value<'static>>) -> Self {
        self.properties.given().headers.push((name.into(), value.into()));
        self
    }
}

/// Where messages come from that no source made.
static DETACHED: LazyLock<Arc<Generation>> =
    LazyLock::new(|| Generation::first(Arc::new(Origin::new("", "", usize::MAX, Capabilities::unknown()))));
