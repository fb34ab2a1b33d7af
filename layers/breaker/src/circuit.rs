//! Whether the circuit is closed, and who may pass.

use std::{
    fmt,
    future::{pending, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tower_mq_delivery::{Circuit, Event, Generation};

use crate::{
    BreakerLayer,
    layer::Verdict,
    window::{Record, Seen},
};

/// One breaker, shared by the clones of its service.
pub(crate) struct Circuitry {
    pub(crate) settings: BreakerLayer,
    /// Grows whenever the circuit opens or closes: even while it is closed. All that is looked at while all is well.
    epoch: AtomicU32,
    record: Record,
    state: Mutex<State>,
    /// Heard by those who wait. While the circuit is closed nobody does.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// Pauses since the circuit was last closed.
    pauses: u32,
    /// What the delivery that opened it came from.
    opened_by: Option<Arc<Generation>>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Closed,
    /// From then on, one may probe.
    Open { until: Instant },
    /// One does.
    Probing,
}

/// The right to call once. Taken in `poll_ready`, and dropped with the call.
#[derive(Debug)]
pub(crate) enum Pass {
    /// The circuit was closed, in this epoch.
    Closed(u32),
    /// Everything depends on it.
    Probe(Probe),
    /// The stack is about to end: what was taken is let through, and proves nothing.
    Last,
}

/// The only delivery that is let through. Dropped without a verdict, it leaves its place to another one.
pub(crate) struct Probe(Option<Arc<Circuitry>>);

impl Circuitry {
    pub(crate) fn new(settings: BreakerLayer, record: Record) -> Self {
        let (epoch, changed) = (AtomicU32::new(0), Notify::new());
        Self { settings, epoch, record, state: Mutex::default(), changed }
    }

    /// A pass, if the circuit is closed.
    #[inline]
    pub(crate) fn closed(&self) -> Option<Pass> {
        let epoch = self.epoch.load(Ordering::Acquire);
        epoch.is_multiple_of(2).then_some(Pass::Closed(epoch))
    }

    /// Waits for a pass, or until the stack is about to end: until this source drains, or, if none is known, that of the
    /// delivery that opened the circuit.
    ///
    /// Cancel safe: what is dropped waits for nothing and holds nothing.
    pub(crate) async fn pass(self: Arc<Self>, known: Option<Arc<Generation>>) -> Pass {
        let generation = known.or_else(|| self.state.lock().opened_by.clone());
        let mut draining = pin!(async {
            match &generation {
                Some(generation) => generation.origin().draining().await,
                None => pending().await,
            }
        });
        loop {
            // Made before the look: a `Notified` hears what is said from its creation on.
            let changed = self.changed.notified();
            let until = match self.enter() {
                Ok(pass) => return pass,
                Err(until) => until,
            };
            let mut rest = pin!(async {
                match until {
                    Some(until) => drop(timeout_at(until, changed).await),
                    None => changed.await,
                }
            });
            let drains = poll_fn(|cx| match draining.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => rest.as_mut().poll(cx).map(|()| false),
            });
            if drains.await {
                return Pass::Last;
            }
        }
    }

    /// A pass, or when to ask again; `None`: when something has changed.
    fn enter(self: &Arc<Self>) -> Result<Pass, Option<Instant>> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Closed => Ok(Pass::Closed(self.epoch.load(Ordering::Acquire))),
            Phase::Open { until } if Instant::now() < until => Err(Some(until)),
            Phase::Open { .. } => {
                state.phase = Phase::Probing;
                Ok(Pass::Probe(Probe(Some(self.clone()))))
            }
            Phase::Probing => Err(None),
        }
    }

    /// A delivery that had this pass has come to its end.
    #[inline]
    pub(crate) fn ended(&self, pass: Pass, verdict: Verdict, generation: Option<&Arc<Generation>>) {
        match (pass, verdict) {
            (Pass::Closed(epoch), Verdict::Good) => {
                // One of before the last pause says nothing of the present.
                if self.is(epoch) {
                    self.record.add(false);
                }
            }
            (Pass::Closed(epoch), Verdict::Bad) => self.failed(epoch, generation),
            (Pass::Closed(_), Verdict::Neither) | (Pass::Last, _) => {}
            (Pass::Probe(probe), verdict) => probe.ended(verdict, generation),
        }
    }

    #[inline]
    fn is(&self, epoch: u32) -> bool {
        self.epoch.load(Ordering::Acquire) == epoch
    }

    /// Looks only after a failure: nothing else makes the share grow, but time, which is not to blame.
    #[cold]
    fn failed(&self, epoch: u32, generation: Option<&Arc<Generation>>) {
        if !self.is(epoch) {
            return;
        }
        self.record.add(true);
        let seen = self.record.seen();
        if self.settings.is_too_bad(seen.failed, seen.all) {
            self.open(epoch, Some(seen), generation);
        }
    }

    /// Opens, unless somebody else did.
    fn open(&self, epoch: u32, seen: Option<Seen>, generation: Option<&Arc<Generation>>) {
        let mut state = self.state.lock();
        if !self.is(epoch) {
            return;
        }
        if epoch.is_multiple_of(2) {
            self.epoch.store(epoch.wrapping_add(1), Ordering::Release);
        }
        state.pauses = state.pauses.saturating_add(1);
        let pause = self.settings.rest(state.pauses);
        let now = Instant::now();
        // A pause that ends beyond the end of time: a century will do.
        let until =
            now.checked_add(pause).unwrap_or(now + std::time::Duration::from_secs(100 * 365 * 86_400));
        state.phase = Phase::Open { until };
        state.opened_by = generation.cloned();
        drop(state);
        self.changed.notify_waiters();
        let source = generation.map(|generation| generation.origin().name());
        match seen {
            Some(Seen { all, failed }) => {
                tracing::warn!(
                    source,
                    failed,
                    of = all,
                    ?pause,
                    "too many deliveries fail: nothing is taken for a while"
                );
            }
            None => {
                tracing::warn!(
                    source,
                    ?pause,
                    "the delivery that was let through failed, too: nothing is taken for a while"
                );
            }
        }
        report(generation, Circuit::Open);
    }

    /// The probe has proved nothing: another one may enter at once.
    #[cold]
    fn leave(&self) {
        self.state.lock().phase = Phase::Open { until: Instant::now() };
        self.changed.notify_waiters();
    }

    fn close(&self, generation: Option<&Arc<Generation>>) {
        {
            let mut state = self.state.lock();
            self.record.clear();
            *state = State::default();
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.changed.notify_waiters();
        let source = generation.map(|generation| generation.origin().name());
        tracing::info!(source, "the delivery that was let through succeeded: deliveries are taken again");
        report(generation, Circuit::Closed);
    }
}

impl Probe {
    #[cold]
    fn ended(mut self, verdict: Verdict, generation: Option<&Arc<Generation>>) {
        let Some(circuit) = self.0.take() else { return };
        match verdict {
            Verdict::Good => circuit.close(generation),
            // Nothing opens or closes while it is out.
            Verdict::Bad => circuit.open(circuit.epoch.load(Ordering::Acquire), None, generation),
            Verdict::Neither => drop(Self(Some(circuit))),
        }
    }
}

impl Drop for Probe {
    #[inline]
    fn drop(&mut self) {
        if let Some(circuit) = &self.0 {
            circuit.leave();
        }
    }
}

#[cold]
pub(crate) fn report(generation: Option<&Arc<Generation>>, circuit: Circuit) {
    if let Some(generation) = generation {
        generation.origin().report(&Event::Circuit(circuit));
    }
}

impl fmt::Debug for Circuitry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuitry")
            .field("settings", &self.settings)
            .field("seen", &self.record.seen())
            .field("state", &*self.state.lock())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}
