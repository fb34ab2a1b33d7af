//! What a message knows of the source that it came from.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

use crate::{Event, Observer, signal::Signal};

/// What the broker behind a source can and cannot do. Layers read it: they never ask which broker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A release raises the broker's count of attempts, so a limit of deliveries at the broker may bite.
    pub release_counts: bool,
    /// To have one delivery again, the broker sends others again, too: retry stays local.
    pub redelivery_disturbs_others: bool,
    /// A delivery that comes again comes behind others of its key.
    pub redelivery_breaks_key_order: bool,
    /// Who counts attempts.
    pub attempts: Attempts,
    /// The broker answers settlements, so [`Settlement::Confirmed`](crate::Settlement::Confirmed) means stored.
    pub settlement_confirmed: bool,
    /// A retry can be put off by the broker; otherwise the source holds it.
    pub delayed_retry: bool,
    /// A reject ends as a dead letter, or is discarded because the user said so; otherwise the source turns it into
    /// a release.
    pub reject_has_target: bool,
}

impl Capabilities {
    /// Nothing is known: what a plain stream of deliveries can do.
    pub const fn unknown() -> Self {
        Self {
            release_counts: false,
            redelivery_disturbs_others: false,
            redelivery_breaks_key_order: true,
            attempts: Attempts::Unknown,
            settlement_confirmed: false,
            delayed_retry: false,
            reject_has_target: true,
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::unknown()
    }
}

/// Who counts the attempts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempts {
    /// The broker, exactly: each failed delivery, and no other.
    Broker,
    /// The source, in this process, for as long as the message stays within the window's worth of memory.
    Source,
    /// Nobody: only "delivered before" is known.
    Unknown,
}

/// How a stack is brought to its end. Either way nothing new is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// What was taken is handled.
    #[default]
    Finish,
    /// What runs is finished; what was taken and has not started is released.
    Release,
}

/// The source of a message: its name and nature, and whether it is about to end. One for all messages of a source.
pub struct Origin {
    name: Cow<'static, str>,
    system: &'static str,
    window: usize,
    capabilities: Capabilities,
    drain: Signal,
    observer: OnceLock<Arc<dyn Observer>>,
}

impl Origin {
    /// A source called `name` (the queue or topic, as its users say it) on a broker of the kind `system` (the
    /// OpenTelemetry value of `messaging.system`), which holds at most `window` deliveries at a time.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        system: &'static str,
        window: usize,
        capabilities: Capabilities,
    ) -> Self {
        Self {
            name: name.into(),
            system,
            window,
            capabilities,
            drain: Signal::default(),
            observer: OnceLock::new(),
        }
    }

    /// The queue or topic, as its users say it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of broker: the OpenTelemetry value of `messaging.system`.
    pub fn system(&self) -> &'static str {
        self.system
    }

    /// The most deliveries that are taken and not settled.
    pub fn window(&self) -> usize {
        self.window
    }

    /// What the broker can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// How the stack is about to end; `None`: it is not.
    pub fn drain(&self) -> Option<Drain> {
        match self.drain.level() {
            0 => None,
            1 => Some(Drain::Finish),
            _ => Some(Drain::Release),
        }
    }

    /// Waits until the stack is about to end. What sleeps on behalf of a delivery stops sleeping then.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn draining(&self) {
        self.drain.reached(1).await;
    }

    /// For the driver and the source's handle: the stack is about to end. It never goes back.
    pub fn start_drain(&self, drain: Drain) {
        self.drain.raise(match drain {
            Drain::Finish => 1,
            Drain::Release => 2,
        });
    }

    /// Tells `observer` of everything that happens from now on. The first one stays; `false`: there was one.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> bool {
        self.observer.set(observer).is_ok()
    }

    /// Reports to the observer, if there is one.
    pub fn report(&self, event: &Event<'_>) {
        if let Some(observer) = self.observer.get() {
            observer.event(self, event);
        }
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("name", &self.name)
            .field("system", &self.system)
            .field("window", &self.window)
            .field("drain", &self.drain())
            .finish_non_exhaustive()
    }
}

/// One life of a broker connection, or of a queue's assignment. Settlements never cross it.
///
/// Every message holds the generation it was taken in. When the generation ends, the broker hands the message to
/// somebody else, so a handler that has not started must not start.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    ended: Signal,
    origin: Arc<Origin>,
}

impl Generation {
    /// The first generation of a source.
    pub fn first(origin: Arc<Origin>) -> Arc<Self> {
        Self::numbered(origin, 1)
    }

    /// A generation of this number.
    pub fn numbered(origin: Arc<Origin>, number: u64) -> Arc<Self> {
        Arc::new(Self { number, ended: Signal::default(), origin })
    }

    /// Ends this generation and begins the next one.
    pub fn next(&self) -> Arc<Self> {
        self.end();
        Self::numbered(self.origin.clone(), self.number + 1)
    }

    /// Counts from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The source.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The connection or assignment is gone.
    pub fn end(&self) {
        self.ended.raise(1);
    }

    /// Whether it is gone.
    pub fn is_over(&self) -> bool {
        self.ended.level() > 0
    }

    /// Waits for the end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn over(&self) {
        self.ended.reached(1).await;
    }
}
