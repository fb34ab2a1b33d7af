//! How a source is watched and steered.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::Context,
};

use atomic_waker::AtomicWaker;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tower_mq_delivery::{Drain, Event, Origin, SharedError};

use super::{Health, State};

/// What a source is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Demand {
    /// Take deliveries.
    Take,
    /// Take nothing for now; go on settling.
    Pause,
    /// Take nothing more, and end.
    Close(Drain),
}

impl Demand {
    const fn code(self) -> u8 {
        match self {
            Self::Take => 0,
            Self::Pause => 1,
            Self::Close(Drain::Finish) => 2,
            Self::Close(Drain::Release) => 3,
        }
    }

    const fn decode(code: u8) -> Self {
        match code {
            0 => Self::Take,
            1 => Self::Pause,
            2 => Self::Close(Drain::Finish),
            _ => Self::Close(Drain::Release),
        }
    }

    /// The end was asked for.
    pub const fn is_close(self) -> bool {
        matches!(self, Self::Close(_))
    }
}

struct Shared {
    origin: Arc<Origin>,
    demand: AtomicU8,
    // One stream polls for demand, one pump awaits it.
    stream: AtomicWaker,
    pump: Notify,
    health: watch::Sender<Health>,
}

/// Watches and steers a source: pause, resume, close, health. Clones are the same handle.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// The source's name and nature.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.0.origin
    }

    /// Stops taking until [`resume`](Self::resume). What was taken is handled and settled.
    pub fn pause(&self) {
        self.ask(Demand::Pause);
    }

    /// Takes again after a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.ask(Demand::Take);
    }

    /// Whether the source is paused.
    pub fn is_paused(&self) -> bool {
        Demand::decode(self.0.demand.load(Ordering::Acquire)) == Demand::Pause
    }

    /// Ends the source: it takes nothing more, and its stream ends when what it has taken is handed out, or given
    /// back with [`Drain::Release`]. It cannot be undone; a second call can only turn `Finish` into `Release`.
    pub fn close(&self, drain: Drain) {
        self.0.origin.start_drain(drain);
        self.ask(Demand::Close(drain));
    }

    /// How the source is doing now.
    pub fn health(&self) -> Health {
        self.0.health.borrow().clone()
    }

    /// Follows the source's health.
    pub fn watch(&self) -> watch::Receiver<Health> {
        self.0.health.subscribe()
    }

    fn ask(&self, demand: Demand) {
        let change = |code| match (Demand::decode(code), demand) {
            (Demand::Close(_), Demand::Take | Demand::Pause) => None,
            (Demand::Close(Drain::Release), _) => None,
            (now, _) => (now != demand).then_some(demand.code()),
        };
        if self.0.demand.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok() {
            self.0.stream.wake();
            self.0.pump.notify_waiters();
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("source", &self.0.origin.name())
            .field("health", &self.0.health.borrow().state)
            .finish_non_exhaustive()
    }
}

/// The source's own side of its [`Handle`]. For those who write a source.
#[derive(Clone)]
pub struct Control(Arc<Shared>);

impl Control {
    /// The control of a source that connects.
    pub fn new(origin: Arc<Origin>) -> Self {
        let health = watch::Sender::new(Health { state: State::Connecting, warnings: Vec::new() });
        let warned = health.clone();
        origin.on_warning(move |warning| warned.send_modify(|health| health.warnings.push(warning.into())));
        let (stream, pump) = (AtomicWaker::new(), Notify::new());
        Self(Arc::new(Shared { origin, demand: AtomicU8::new(Demand::Take.code()), stream, pump, health }))
    }

    /// The handle that the source gives out.
    pub fn handle(&self) -> Handle {
        Handle(self.0.clone())
    }

    /// The source's name and nature.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.0.origin
    }

    /// What the source is asked to do now.
    pub fn demand(&self) -> Demand {
        Demand::decode(self.0.demand.load(Ordering::Acquire))
    }

    /// What the source is asked to do now; the one task that polls this is woken when that changes.
    pub fn poll_demand(&self, cx: &Context<'_>) -> Demand {
        self.0.stream.register(cx.waker());
        self.demand()
    }

    /// Waits until the source is asked to do something else than `now`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn demand_other_than(&self, now: Demand) -> Demand {
        loop {
            // Made before the look: a `Notified` hears what is said from its creation on.
            let changed = self.0.pump.notified();
            let demand = self.demand();
            if demand != now {
                return demand;
            }
            changed.await;
        }
    }

    /// The source is connected, and a generation of this number begins.
    pub fn connected(&self, generation: u64) {
        self.set(State::Connected { since: Instant::now(), generation });
        self.0.origin.report(&Event::Connected { generation });
        tracing::info!(source = self.0.origin.name(), generation, "connected");
    }

    /// The source has no broker and tries to come back.
    pub fn reconnecting(&self, since: Instant, attempt: u32, error: SharedError) {
        let name = self.0.origin.name();
        tracing::warn!(source = name, attempt, error = %error, "not connected");
        let boxed = error.clone().into();
        self.0.origin.report(&Event::Reconnecting { attempt, error: &boxed });
        self.set(State::Reconnecting { since, attempt, error });
    }

    /// The source has ended; with an error if it was not asked to.
    pub fn closed(&self, error: Option<SharedError>) {
        let name = self.0.origin.name();
        match &error {
            Some(error) => tracing::error!(source = name, error = %error, "ended"),
            None => tracing::info!(source = name, "closed"),
        }
        self.set(State::Closed { error });
    }

    fn set(&self, state: State) {
        self.0.health.send_modify(|health| health.state = state);
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.handle(), f)
    }
}

#[cfg(test)]
mod tests {
    use tower_mq_delivery::Capabilities;

    use super::*;

    #[test]
    fn an_end_that_was_asked_for_is_not_undone_and_only_becomes_a_quicker_one() {
        let control = Control::new(Arc::new(Origin::new("orders", "test", 1, Capabilities::unknown())));
        let handle = control.handle();
        handle.pause();
        assert!(handle.is_paused());
        handle.close(Drain::Finish);
        handle.resume();
        handle.pause();
        assert_eq!(control.demand(), Demand::Close(Drain::Finish));
        handle.close(Drain::Release);
        handle.close(Drain::Finish);
        handle.resume();
        assert_eq!((control.demand(), handle.is_paused()), (Demand::Close(Drain::Release), false));
        assert_eq!(control.origin().drain(), Some(Drain::Release));
    }
}
