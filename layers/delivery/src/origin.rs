//! What a message knows of the source that it came from.

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    Capabilities, Event, Observer,
    observe::{self, Observers},
    signal::Signal,
};

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
    id: u64,
    name: Cow<'static, str>,
    system: &'static str,
    window: usize,
    capabilities: Capabilities,
    drain: Signal,
    observers: Observers,
    warnings: Mutex<Warnings>,
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
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            name: name.into(),
            system,
            window,
            capabilities,
            drain: Signal::default(),
            observers: Observers::default(),
            warnings: Mutex::default(),
        }
    }

    /// Tells the sources of this process apart, also those of one name. Never 0.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
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

    /// Waits until the stack gives back what has not started: until [`drain`](Self::drain) is [`Drain::Release`], at once
    /// or after it has begun to finish.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn releasing(&self) {
        self.drain.reached(2).await;
    }

    /// For the driver and the source's handle: the stack is about to end. It never goes back.
    pub fn start_drain(&self, drain: Drain) {
        self.drain.raise(match drain {
            Drain::Finish => 1,
            Drain::Release => 2,
        });
    }

    /// Tells `observer` of everything that happens from now on, beside those that are told already. `false`: it is one
    /// of them.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> bool {
        self.observers.add(observer)
    }

    /// Whether anybody is told: for those who would have to work for a report.
    #[inline]
    pub fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Whether anybody is told of any source of this process: one look, before the way to an origin.
    #[inline]
    pub fn is_any_observed() -> bool {
        observe::anybody()
    }

    /// Reports to the observers, if there are any.
    ///
    /// # Panics
    /// None: a panic of an observer is logged. Events happen where deliveries are dropped, too, also while something
    /// else panics.
    #[inline]
    pub fn report(&self, event: &Event<'_>) {
        self.observers.tell(self, event);
    }

    /// Tells the user, once, what should be changed: in the log, to the observers, and in the health of the source.
    pub fn warn(&self, warning: &str) {
        let mut warnings = self.warnings.lock();
        if warnings.said.iter().any(|said| **said == *warning) {
            return;
        }
        warnings.said.push(warning.into());
        if let Some(heard) = &warnings.heard {
            heard(warning);
        }
        drop(warnings);
        tracing::warn!(source = self.name(), warning);
        self.report(&Event::Warned { warning });
    }

    /// For sources, which show warnings in their health: calls `heard` with each one, first with those of before. It
    /// replaces the one that was set before, and must not warn itself.
    pub fn on_warning(&self, heard: impl Fn(&str) + Send + Sync + 'static) {
        let mut warnings = self.warnings.lock();
        warnings.said.iter().for_each(|said| heard(said));
        warnings.heard = Some(Box::new(heard));
    }
}

type Hear = dyn Fn(&str) + Send + Sync;

/// What was warned of, and who wants to hear of it.
#[derive(Default)]
struct Warnings {
    said: Vec<Box<str>>,
    heard: Option<Box<Hear>>,
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
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn origin() -> Origin {
        Origin::new("orders", "test", 1, Capabilities::unknown())
    }

    #[test]
    fn every_observer_is_told_and_none_twice() {
        let (origin, told) = (origin(), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
        let count = |by| {
            let told = told.clone();
            Arc::new(move |_: &Origin, _: &Event<'_>| {
                told.fetch_add(by, std::sync::atomic::Ordering::Relaxed);
            })
        };
        let (one, ten) = (count(1), count(10));
        assert!(!origin.is_observed());
        assert_eq!(
            [origin.observe(one.clone()), origin.observe(ten), origin.observe(one)],
            [true, true, false]
        );
        origin.report(&Event::Taken);
        assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), 11);
    }

    #[test]
    fn a_warning_is_given_once_also_to_who_comes_later() {
        let origin = origin();
        let heard = Arc::new(Mutex::new(Vec::new()));
        origin.warn("too small");
        let hears = heard.clone();
        origin.on_warning(move |warning| hears.lock().push(warning.to_owned()));
        origin.warn("too small");
        origin.warn("too large");
        assert_eq!(*heard.lock(), ["too small", "too large"]);
    }

    /// Reports when it is dropped, as a delivery does.
    struct Drops(Origin);

    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.report(&Event::Dropped);
        }
    }

    #[test]
    fn a_panic_of_an_observer_goes_no_further() {
        let origin = origin();
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
