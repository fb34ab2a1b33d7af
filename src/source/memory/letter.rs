//! What a queue stores.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use tower_mq_delivery::{
    ATTEMPT_HEADER, DEAD_LETTER_ATTEMPTS, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON, Generation, Message,
    Properties, Publication, Turn, Value,
};

type Header = (Cow<'static, str>, Value<'static>);

/// A message in a queue, with what the queue knows of it.
#[derive(Debug)]
pub(super) struct Letter {
    /// Its place in the order of the queue, for as long as it is there.
    pub(super) sequence: u64,
    /// Attempts that failed.
    pub(super) failures: u32,
    /// How often it came back.
    pub(super) returns: u32,
    pub(super) message: Message,
    /// The subscription that holds it; `None`: it is in the line.
    pub(super) holder: Option<usize>,
}

impl Letter {
    pub(super) fn attempt(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    /// It was handed out and comes back. Its place in the order.
    pub(super) fn come_back(&mut self) -> u64 {
        self.returns = self.returns.saturating_add(1);
        self.holder = None;
        self.sequence
    }

    /// What a consumer is given: what was published, not a copy, unless somebody still holds it from before. And a
    /// generation to be dropped when the lock is released.
    #[inline(always)]
    pub(super) fn deliver(&mut self, generation: Arc<Generation>) -> (Message, Arc<Generation>) {
        self.message.deliver_in(generation, self.attempt(), self.returns > 0)
    }
}

/// The dead letter of a message that was rejected in its `attempt`.
pub(super) fn dead(message: &Message, queue: &str, attempt: u32, reason: &str) -> Message {
    let headers = vec![
        (DEAD_LETTER_REASON.into(), Value::Text(reason.to_owned().into())),
        (DEAD_LETTER_ATTEMPTS.into(), Value::U32(attempt)),
        (DEAD_LETTER_QUEUE.into(), Value::Text(queue.to_owned().into())),
    ];
    with(message, headers)
}

/// What is stored of a publication.
pub(super) fn stored(publication: Publication) -> Message {
    let Publication { mut message, headers, .. } = publication;
    // The turn belongs to whoever runs the message that this is a copy of.
    let _theirs = message.set_turn(Turn::detached());
    // From now on its destination is the queue.
    let as_it_is = headers.is_empty()
        && message.properties().destination().is_none()
        && message.header(ATTEMPT_HEADER).is_none();
    match as_it_is {
        true => message,
        false => with(&message, headers),
    }
}

/// The message with these headers, too.
fn with(message: &Message, headers: Vec<Header>) -> Message {
    let properties = match message.native::<Amended>() {
        // A message that moves from queue to queue for ever must not grow.
        Some(amended) => amended.with(headers),
        None => Amended { message: message.clone(), headers: headers.into() },
    };
    Message::native_builder(message.payload().clone(), message.generation().clone(), properties)
        .maybe_key(message.key().cloned())
        .build()
}

/// The properties of a message that was published with more headers than it had.
#[derive(Debug)]
struct Amended {
    message: Message,
    /// Added to the headers of the message, or instead of them.
    headers: Box<[Header]>,
}

impl Amended {
    fn with(&self, headers: Vec<Header>) -> Self {
        let is_kept = |name| name != ATTEMPT_HEADER && headers.iter().all(|(new, _)| new != name);
        let kept = self.headers.iter().filter(|(name, _)| is_kept(name));
        let headers = kept.cloned().collect::<Vec<_>>().into_iter().chain(headers).collect();
        Self { message: self.message.clone(), headers }
    }

    fn original(&self) -> &dyn Properties {
        self.message.properties()
    }

    fn added(&self, name: &str) -> Option<Value<'_>> {
        // The last one counts, as when they were set one after the other.
        self.headers.iter().rfind(|(n, _)| n == name).map(|(_, value)| value.clone())
    }
}

impl Properties for Amended {
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
        self.added(name).or_else(|| self.original().header(name).filter(|_| name != ATTEMPT_HEADER))
    }

    fn headers(&self) -> Box<dyn Iterator<Item = (&str, Value<'_>)> + '_> {
        let taken_over = |name| name != ATTEMPT_HEADER && self.added(name).is_none();
        let original = self.original().headers().filter(move |(name, _)| taken_over(name));
        Box::new(original.chain(self.headers.iter().map(|(name, value)| (&**name, value.clone()))))
    }
}
