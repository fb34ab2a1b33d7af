//! What is handled: payload, key, headers, properties.

use std::{
    any::Any,
    borrow::Cow,
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    Capabilities, DynError, ErrorPolicy, Failure, Generation, MessageBuilder, Origin, Outcome, Plain,
    Properties, Turn, Value,
    body::{Body, Head},
    observe,
};

/// A message: what a handler sees of a delivery.
///
/// A clone costs two reference counts. Making one costs one allocation: payload and key are slices of the broker's
/// frame, and the broker's own properties ride along ([`native`](Self::native)).
///
/// ```
/// use tower_mq_delivery::{Message, Value};
///
/// let message = Message::builder("{}").key("customer-7").header("tenant", "blue").build();
/// assert_eq!(message.key().unwrap(), "customer-7");
/// assert_eq!(message.header("tenant"), Some(Value::from("blue")));
/// ```
#[derive(Clone)]
pub struct Message {
    pub(crate) body: Arc<Body>,
    turn: Turn,
    policy: Option<ErrorPolicy>,
}

impl Message {
    /// A message that no broker made.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self::builder(payload).build()
    }

    /// Builds a message that no broker made.
    pub fn builder(payload: impl Into<Bytes>) -> MessageBuilder {
        MessageBuilder::new(payload.into(), None, Plain::default())
    }

    /// Builds a message of a source, around the properties of its broker.
    pub fn native_builder<P: Properties>(
        payload: Bytes,
        generation: Arc<Generation>,
        properties: P,
    ) -> MessageBuilder<P> {
        MessageBuilder::new(payload, Some(generation), properties)
    }

    pub(crate) fn of(body: Arc<Body>) -> Self {
        Self { body, turn: Turn::detached(), policy: None }
    }

    #[inline]
    fn head(&self) -> &Head {
        &self.body.head
    }

    /// For sources that keep what they hand out: another delivery of this message, by the same or another source.
    /// Attempts are counted from 1.
    ///
    /// # Cost
    /// None, if nobody else holds the message any more; else one allocation.
    pub fn deliver(&mut self, generation: &Arc<Generation>, attempt: u32, redelivered: bool) -> Self {
        self.deliver_in(generation.clone(), attempt, redelivered).0
    }

    /// [`deliver`](Self::deliver), for sources that do so under a lock. Gives back a generation that is to be dropped
    /// without it: the last handle of one may be the end of a source and its observer, which may do anything.
    #[inline(always)]
    pub fn deliver_in(
        &mut self,
        mut generation: Arc<Generation>,
        attempt: u32,
        redelivered: bool,
    ) -> (Self, Arc<Generation>) {
        let attempt = attempt.max(1);
        let Some(body) = Arc::get_mut(&mut self.body) else {
            return (self.deliver_copy(&generation, attempt, redelivered), generation);
        };
        let head = &mut body.head;
        mem::swap(&mut head.generation, &mut generation);
        (head.lease, head.attempt, head.redelivered) = (None, Some(attempt), redelivered);
        (*head.again.get_mut(), *head.dead.get_mut()) = (0, false);
        (Self::of(self.body.clone()), generation)
    }

    #[cold]
    fn deliver_copy(&self, generation: &Arc<Generation>, attempt: u32, redelivered: bool) -> Self {
        // Of the first one, so that a message that is delivered for ever does not grow.
        let original = self.head().original.as_ref().unwrap_or(&self.body).clone();
        let head = Head {
            payload: self.payload().clone(),
            key: self.key().cloned(),
            generation: generation.clone(),
            lease: None,
            attempt: Some(attempt),
            again: AtomicU32::new(0),
            failed: AtomicU64::new(self.head().failed.load(Ordering::Relaxed)),
            redelivered,
            dead: AtomicBool::new(false),
            original: Some(original),
        };
        Self::of(Arc::new(Body { head, properties: Plain::default() }))
    }

    /// What was sent.
    pub fn payload(&self) -> &Bytes {
        &self.head().payload
    }

    /// The key whose messages are in order. An empty key is a key; `None` is not.
    pub fn key(&self) -> Option<&Bytes> {
        self.head().key.as_ref()
    }

    /// The queue or topic that it was taken from.
    pub fn destination(&self) -> Cow<'_, str> {
        self.properties().destination().unwrap_or_else(|| self.origin().name().into())
    }

    /// The message's id, as its producer or broker gave it.
    pub fn id(&self) -> Option<Cow<'_, str>> {
        self.properties().id()
    }

    /// The id of the message that this one answers.
    pub fn correlation_id(&self) -> Option<Cow<'_, str>> {
        self.properties().correlation_id()
    }

    /// Where an answer is expected.
    pub fn reply_to(&self) -> Option<Cow<'_, str>> {
        self.properties().reply_to()
    }

    /// The payload's media type.
    pub fn content_type(&self) -> Option<Cow<'_, str>> {
        self.properties().content_type()
    }

    /// When the message was made, by its producer's clock or its broker's.
    pub fn timestamp(&self) -> Option<SystemTime> {
        self.properties().timestamp()
    }

    /// One header, decoded now.
    pub fn header(&self, name: &str) -> Option<Value<'_>> {
        self.properties().header(name)
    }

    /// All headers: a handle that can be kept.
    pub fn headers(&self) -> Headers {
        Headers(self.body.clone())
    }

    /// Which attempt this is, from 1; `None` where nobody counts. Tries in place are not attempts: see
    /// [`tries`](Self::tries).
    pub fn attempt(&self) -> Option<u32> {
        self.head().attempt
    }

    /// The broker has delivered it before, to anyone.
    pub fn redelivered(&self) -> bool {
        self.head().redelivered
    }

    /// How often a handler was given this delivery, from 1: grows with each retry in place, for all clones.
    pub fn tries(&self) -> u32 {
        self.head().again.load(Ordering::Relaxed) + 1
    }

    /// For retry layers: the handler is given this delivery once more.
    pub fn again(&self) {
        self.head().again.fetch_add(1, Ordering::Relaxed);
    }

    /// When a handler first failed with it, as far as this process knows: of this delivery, or of an earlier one that
    /// the source handed out from the same memory.
    pub fn first_failure(&self) -> Option<SystemTime> {
        match self.head().failed.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis)),
        }
    }

    /// For layers that see a handler fail: notes the time, if it is the first. [`judge`](Self::judge) does so, too.
    #[cold]
    pub fn failed(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1);
        let _ = self.head().failed.compare_exchange(0, millis, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Its copy is stored among the dead letters: if it is acked, then for that reason, and not because it was handled.
    pub fn is_dead_lettered(&self) -> bool {
        self.head().dead.load(Ordering::Relaxed)
    }

    /// For dead-letter layers: the copy is stored. A layer that remembers what was handled must not remember this one, or
    /// who sends the dead letters back to their queue finds them acked unseen.
    #[cold]
    pub fn set_dead_lettered(&self) {
        self.head().dead.store(true, Ordering::Relaxed);
    }

    /// Until when the broker keeps it locked for us, as of the time it was taken. The source renews the lock.
    pub fn lease(&self) -> Option<Instant> {
        self.head().lease
    }

    /// The life of the connection or assignment that it was taken in.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.head().generation
    }

    /// Its generation has ended: somebody else has it, or will. Do not start to handle it.
    pub fn is_stale(&self) -> bool {
        self.head().generation.is_over()
    }

    /// The source.
    pub fn origin(&self) -> &Origin {
        self.head().generation.origin()
    }

    /// Whether anybody is told what happens to it: for those who would have to work for a report.
    #[inline]
    pub fn is_observed(&self) -> bool {
        observe::anybody() && self.origin().is_observed()
    }

    /// What the broker can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.origin().capabilities()
    }

    /// The broker's own properties, where `P` is the type that its source documents.
    pub fn native<P: Properties>(&self) -> Option<&P> {
        (self.properties() as &dyn Any).downcast_ref()
    }

    /// The broker's properties as all brokers have them.
    pub fn properties(&self) -> &dyn Properties {
        self.body.properties()
    }

    /// The right to be the delivery that holds up the queue.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// For settle layers: a handle to judge by, which is no part of the queue: it has no turn.
    ///
    /// # Cost
    /// One reference count less than a clone.
    #[inline]
    pub fn aside(&self) -> Self {
        Self { body: self.body.clone(), turn: Turn::detached(), policy: self.policy.clone() }
    }

    /// For drivers and lanes: puts their turn into the message, and gives back the one that was there.
    pub fn set_turn(&mut self, turn: Turn) -> Turn {
        mem::replace(&mut self.turn, turn)
    }

    /// For settle layers: the policy for errors without a decision of their own.
    pub fn set_policy(&mut self, policy: ErrorPolicy) {
        self.policy = Some(policy);
    }

    /// What happens to this message, whose handler failed: the error's own decision, else that of `policy`, else that
    /// of the policy in the message, else that of the default policy.
    ///
    /// The innermost layer that must know the outcome asks this, and hands on the outcome, so each error is judged
    /// once.
    pub fn judge(&self, error: &DynError, policy: Option<&ErrorPolicy>) -> Outcome {
        self.failed();
        if let Some(outcome) = Failure::find(error) {
            return outcome.clone();
        }
        match policy.or(self.policy.as_ref()) {
            Some(policy) => policy.judge(self, error),
            None => ErrorPolicy::judge_by_default(self, error),
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("destination", &self.destination())
            .field("key", &self.key())
            .field("payload", &format_args!("{} bytes", self.payload().len()))
            .field("attempt", &self.attempt())
            .field("generation", &self.generation().number())
            .finish_non_exhaustive()
    }
}

/// The headers of a message, with their native types, decoded when asked for.
#[derive(Clone)]
pub struct Headers(Arc<Body>);

impl Headers {
    /// One header.
    pub fn get(&self, name: &str) -> Option<Value<'_>> {
        self.0.properties().header(name)
    }

    /// All of them, in the broker's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.0.properties().headers()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
