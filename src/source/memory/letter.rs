//! What a queue stores.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use bytes::Bytes;
use tower_mq_delivery::{Generation, Message, Properties, Publication, Turn, Value};

/// A header of a dead letter: the reason of the reject, or why the broker gave up.
pub const DEAD_LETTER_REASON: &str = "dead-letter-reason";
/// A header of a dead letter: how many attempts there were.
pub const DEAD_LETTER_ATTEMPTS: &str = "dead-letter-attempts";
/// A header of a dead letter: the queue that it was in.
pub const DEAD_LETTER_QUEUE: &str = "dead-letter-queue";

type Header = (Cow<'static, str>, Value<'static>);

/// A message in a queue, with what the queue knows of it.
#[derive(Debug)]
pub(super) struct Letter {
    /// Its place in the order of the queue, for as long as it is there.
    pub(super) sequence: u64,
    /// Attempts that failed.
    pub(super) failures: u32,
    pub(super) redelivered: bool,
    pub(super) content: Arc<Content>,
}

impl Letter {
    pub(super) fn attempt(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    pub(super) fn key(&self) -> Option<Bytes> {
        self.content.key().cloned()
    }

    /// What a consumer is given. One allocation: the message itself.
    pub(super) fn message(
        content: Arc<Content>,
        attempt: u32,
        redelivered: bool,
        generation: Arc<Generation>,
    ) -> Message {
        let (payload, key) = (content.message.payload().clone(), content.message.key().cloned());
        Message::native_builder(payload, generation, Stored(content))
            .maybe_key(key)
            .attempt(attempt)
            .redelivered(redelivered)
            .build()
    }
}

/// What was published. Stored once, however often it is delivered or moved.
#[derive(Debug)]
pub(super) struct Content {
    message: Message,
    /// Added to the headers of the message, or instead of them.
    headers: Option<Box<[Header]>>,
}

impl Content {
    pub(super) fn new(publication: Publication) -> Self {
        let Publication { mut message, headers, .. } = publication;
        // The turn belongs to whoever runs the message that this is a copy of.
        let _theirs = message.set_turn(Turn::detached());
        // A first clone may have to turn a vector into shared bytes: not when the message is delivered.
        drop((message.payload().clone(), message.key().cloned()));
        match message.native::<Stored>() {
            // A message that moves from queue to queue for ever must not grow.
            Some(Stored(content)) => content.with(&headers),
            None => Self { message, headers: boxed(headers) },
        }
    }

    pub(super) fn key(&self) -> Option<&Bytes> {
        self.message.key()
    }

    /// A copy with these headers, too.
    fn with(&self, headers: &[Header]) -> Self {
        let kept = self.headers().iter().filter(|(name, _)| headers.iter().all(|(new, _)| new != name));
        Self { message: self.message.clone(), headers: boxed(kept.chain(headers).cloned().collect()) }
    }

    /// The dead letter of it.
    pub(super) fn dead(&self, queue: &str, attempts: u32, reason: &str) -> Self {
        self.with(&[
            (DEAD_LETTER_REASON.into(), Value::Text(reason.to_owned().into())),
            (DEAD_LETTER_ATTEMPTS.into(), Value::U32(attempts)),
            (DEAD_LETTER_QUEUE.into(), Value::Text(queue.to_owned().into())),
        ])
    }

    fn headers(&self) -> &[Header] {
        self.headers.as_deref().unwrap_or_default()
    }

    fn added(&self, name: &str) -> Option<Value<'_>> {
        // The last one counts, as when they were set one after the other.
        self.headers().iter().rfind(|(n, _)| n == name).map(|(_, value)| value.clone())
    }
}

/// The properties of a delivered message: those it was published with.
#[derive(Debug)]
struct Stored(Arc<Content>);

impl Stored {
    fn original(&self) -> &dyn Properties {
        self.0.message.properties()
    }
}

impl Properties for Stored {
    fn id(&self) -> Option<Cow<'_, str>> {
        self.original().id()
    }

    fn correlation_id(&self) -> Option<Cow<'_, str>> {
        self.original().correlation_id()
    }

    fn reply_to(&self) -> Option<Cow<'_, str>> {
        self.original().reply_to()
    }

    fn content_type(&self) -> Option<Cow<'_, str>> {
        self.original().content_type()
    }

    fn timestamp(&self) -> Option<SystemTime> {
        self.original().timestamp()
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.0.added(name).or_else(|| self.original().header(name))
    }

    fn headers(&self) -> Box<dyn Iterator<Item = (&str, Value<'_>)> + '_> {
        let original = self.original().headers().filter(|(name, _)| self.0.added(name).is_none());
        Box::new(original.chain(self.0.headers().iter().map(|(name, value)| (&**name, value.clone()))))
    }
}

fn boxed(headers: Vec<Header>) -> Option<Box<[Header]>> {
    (!headers.is_empty()).then(|| headers.into())
}
