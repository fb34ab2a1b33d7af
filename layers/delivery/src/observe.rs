//! What happened, for those who count and log.

use crate::{BoxError, Message, Origin, Outcome, Settlement};

/// Hears of everything that happens to deliveries: metrics, tests, a user's own log.
///
/// It is called on the hot path, from many threads: it must be quick and must not block. Set it with
/// [`Origin::observe`]; the driver's builder does so.
pub trait Observer: Send + Sync + 'static {
    /// Something happened to a delivery of `origin`, or to its source.
    fn event(&self, origin: &Origin, event: &Event<'_>);
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
}
