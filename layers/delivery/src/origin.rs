//! What a message knows of the source that it came from.

use std::{
    borrow::Cow,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
};

use crate::{Capabilities, Event, Observer, Panicked, signal::Signal};

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
    ///
    /// # Panics
    /// None: a panic of the observer is logged. Events happen where deliveries are dropped, too, also while something
    /// else panics.
    pub fn report(&self, event: &Event<'_>) {
        let Some(observer) = self.observer.get() else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| observer.event(self, event))) {
            tracing::error!(source = self.name(), error = %Panicked::new(&panic), "an observer panicked");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports when it is dropped, as a delivery does.
    struct Drops(Origin);

    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.report(&Event::Dropped);
        }
    }

    #[test]
    fn a_panic_of_an_observer_goes_no_further() {
        let origin = Origin::new("orders", "test", 1, Capabilities::unknown());
        origin.observe(Arc::new(|_: &Origin, _: &Event<'_>| panic!("on purpose")));
        origin.report(&Event::Taken);
        let dropped = Drops(origin);
        // A panic while another one is under way would end the process.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _dropped = dropped;
            panic!("another one");
        }));
        assert!(panic.is_err());
    }
}
