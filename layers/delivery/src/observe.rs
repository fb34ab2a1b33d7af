//! What happened, for those who count and log.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{Batch, BoxError, Message, Origin, Outcome, Panicked, Settlement};

/// Hears of everything that happens to deliveries: metrics, tests, a user's own log.
///
/// It is called on the hot path, from many threads: it must be quick and must not block. Set it with
/// [`Origin::observe`]; the driver's builder does so.
pub trait Observer: Send + Sync + 'static {
    /// Something happened to a delivery of `origin`, or to its source.
    fn event(&self, origin: &Origin, event: &Event<'_>);

    /// What an origin is given to tell. A handle of an observer gives the observer itself, so that one that is set twice
    /// is told once ([`Origin::observe`]).
    fn shared(self) -> Arc<dyn Observer>
    where
        Self: Sized,
    {
        Arc::new(self)
    }
}

impl<F> Observer for F
where
    F: Fn(&Origin, &Event<'_>) + Send + Sync + 'static,
{
    fn event(&self, origin: &Origin, event: &Event<'_>) {
        self(origin, event);
    }
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The driver took a delivery from its source.
    Taken,
    /// A delivery was settled: once for each.
    Settled {
        /// What was decided.
        outcome: &'a Outcome,
        /// What became of the decision, as far as it is known at once.
        settlement: Settlement,
    },
    /// A delivery was dropped without a decision, and was released.
    Dropped,
    /// A delivery was not handled, because its generation had ended or its source wants it back.
    NotHandled {
        /// The delivery's message.
        message: &'a Message,
    },
    /// A handler or service panicked.
    Panicked {
        /// The message it was given, where that is known.
        message: Option<&'a Message>,
    },
    /// The source is connected.
    Connected {
        /// The number of the generation that begins.
        generation: u64,
    },
    /// The source lost its broker and tries to come back.
    Reconnecting {
        /// Counts from 1.
        attempt: u32,
        /// Why the last attempt failed.
        error: &'a BoxError,
    },
    /// The source turned one outcome into another, because its broker cannot do what was decided.
    Replaced {
        /// What was decided.
        decided: &'a Outcome,
        /// What the broker is told.
        told: &'a Outcome,
    },
    /// The source has something to say that its user should change.
    Warned {
        /// The warning.
        warning: &'a str,
    },
    /// A lane takes a delivery in, or begins with one. Workers that share all keys have no lanes, and do not tell.
    Lane {
        /// Which one, from 0.
        lane: usize,
        /// How many wait in it now.
        waiting: usize,
    },
    /// A handler failed, and is given the message once more, in place.
    Retried {
        /// The message.
        message: &'a Message,
        /// After this time.
        after: Duration,
    },
    /// A message sleeps until its next try, and its worker serves other keys.
    Parked {
        /// The message.
        message: &'a Message,
    },
    /// A message that was parked is awake again, or is given up.
    Resumed {
        /// The message.
        message: &'a Message,
    },
    /// A batch was closed, and goes to its handler.
    Gathered {
        /// The batch.
        batch: &'a Batch<Message>,
    },
    /// A message was not handled, because another one with its id was, or is.
    Duplicate {
        /// The message.
        message: &'a Message,
    },
    /// A message has no id by which a duplicate could be told, and is handled.
    Unidentified {
        /// The message.
        message: &'a Message,
    },
    /// The store that remembers ids did not answer.
    StoreFailed {
        /// Why.
        error: &'a BoxError,
    },
    /// The copy of a rejected message is stored in its dead-letter queue.
    DeadLettered {
        /// The message.
        message: &'a Message,
        /// Why it was rejected.
        reason: &'a str,
    },
    /// The copy of a rejected message could not be stored.
    NotDeadLettered {
        /// The message.
        message: &'a Message,
        /// Why.
        error: &'a BoxError,
        /// Nothing more is tried: the message is released.
        given_up: bool,
    },
    /// A breaker has let go, or taken hold.
    Circuit(Circuit),
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// Everything.
    Closed,
    /// Nothing.
    Open,
    /// One delivery, to see how it fares.
    HalfOpen,
}

/// Whether anybody is told of anything. In most processes nobody is, or everybody; one look here spares the way to the
/// origin.
static ANYBODY: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn anybody() -> bool {
    ANYBODY.load(Ordering::Relaxed)
}

/// Those who are told, in the order in which they came. Only grows, so reading takes no lock.
#[derive(Default)]
pub(crate) struct Observers(OnceLock<Box<Link>>);

struct Link {
    observer: Arc<dyn Observer>,
    next: Observers,
}

impl Observers {
    /// `false`: this one is there already.
    pub(crate) fn add(&self, observer: Arc<dyn Observer>) -> bool {
        ANYBODY.store(true, Ordering::Relaxed);
        let mut last = self;
        let mut link = Box::new(Link { observer, next: Self::default() });
        loop {
            while let Some(there) = last.0.get() {
                if Arc::ptr_eq(&there.observer, &link.observer) {
                    return false;
                }
                last = &there.next;
            }
            match last.0.set(link) {
                Ok(()) => return true,
                // Another one came first.
                Err(back) => link = back,
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !anybody() || self.0.get().is_none()
    }

    #[inline]
    pub(crate) fn tell(&self, origin: &Origin, event: &Event<'_>) {
        if !self.is_empty() {
            self.tell_all(origin, event);
        }
    }

    fn tell_all(&self, origin: &Origin, event: &Event<'_>) {
        let mut next = self.0.get();
        while let Some(link) = next {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| link.observer.event(origin, event))) {
                tracing::error!(source = origin.name(), error = %Panicked::new(&panic), "an observer panicked");
            }
            next = link.next.0.get();
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observers")
    }
}
