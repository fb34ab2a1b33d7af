//! A source that does what a test says.

mod again;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;
use tower_mq_delivery::{BoxError, Capabilities, Generation, Message, MessageBuilder, Origin, Properties};

use crate::{probe::Probe, reply::Reply};
pub use again::Again;
pub use stream::Scripted;

/// A stream of deliveries, and the script that says what comes out of it.
///
/// What the script is told is done in this order, each step when the stream is polled and the one before is done:
/// deliveries, waits, the end. Stalls and new generations happen at once.
///
/// A script is not a broker: what is released or to be retried comes again only if the script says so.
///
/// | fault | here |
/// |---|---|
/// | the connection is lost, and all that is out comes again | [`disconnect`](Script::disconnect) |
/// | the connection is lost, and somebody else gets it | [`new_generation`](Script::new_generation) |
/// | a duplicate | [`deliver_twice`](Script::deliver_twice), [`deliver_again`](Script::deliver_again) |
/// | another order | [`reorder`](Script::reorder) |
/// | a settlement that is slow, refused, too late for its lease, or never confirmed | [`Reply`], for [all](Script::reply_with) or [one](Probe::reply_with) |
/// | the broker falls silent | [`stall`](Script::stall) |
/// | the source ends by itself | [`fail`](Script::fail) |
///
/// The stream's window is 256; what its broker can do is unknown. For other settings see [`source_of`].
///
/// ```
/// use std::time::Duration;
/// use futures_util::StreamExt;
/// use tower_mq_delivery::{Message, Outcome};
/// use tower_mq_testing::{assert_settled, source};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (mut orders, script) = source();
/// let tea = script.deliver(Message::builder("two teas").key("table-7"));
/// script.wait(Duration::from_secs(60));
/// let bill = script.deliver(Message::builder("the bill").key("table-7"));
/// script.end();
///
/// while let Some(delivery) = orders.next().await {
///     let _ = delivery.settle(Outcome::Ack);
/// }
/// assert_settled!(tea, Outcome::Ack);
/// assert_eq!(bill.taken_at().unwrap() - tea.taken_at().unwrap(), Duration::from_secs(60));
/// # }
/// ```
pub fn source() -> (Scripted, Script) {
    source_of(Origin::new("test", "test", 256, Capabilities::unknown()))
}

/// [`source()`] with a name, a window and capabilities of your own.
pub fn source_of(origin: Origin) -> (Scripted, Script) {
    let window = origin.window();
    let generation = Generation::first(Arc::new(origin));
    let state = State {
        steps: VecDeque::new(),
        numbers: 0,
        out: BTreeMap::new(),
        window,
        generation,
        stalled: false,
        reply: None,
        waker: None,
    };
    let state = Arc::new(Mutex::new(state));
    (Scripted { state: state.clone(), waiting: None, end: None }, Script(state))
}

struct State {
    steps: VecDeque<Step>,
    /// The number of the delivery that was handed out last.
    numbers: u64,
    /// What is handed out in the live generation, and not done with.
    out: BTreeMap<u64, Out>,
    window: usize,
    generation: Arc<Generation>,
    stalled: bool,
    /// What settlements are answered.
    reply: Option<Reply>,
    waker: Option<Waker>,
}

impl State {
    fn unsettled(&self) -> usize {
        self.out.values().filter(|out| !out.decided).count()
    }

    /// The generation ends, and another one begins. Gives back what was out.
    fn renew(&mut self) -> Vec<Probe> {
        self.generation = self.generation.next();
        std::mem::take(&mut self.out).into_values().map(|out| out.probe).collect()
    }
}

/// A delivery that is out.
struct Out {
    probe: Probe,
    /// Its settlement is still to be answered: it costs no place of the window.
    decided: bool,
}

enum Step {
    Deliver(Box<dyn FnOnce(Arc<Generation>) -> Message + Send>, Probe),
    Again(Probe, Again, Probe),
    Wait(Duration),
    End(Result<(), BoxError>),
}

impl Step {
    fn is_delivery(&self) -> bool {
        matches!(self, Self::Deliver(..) | Self::Again(..))
    }
}

/// A message that is to come again in front of where it comes, and its place there.
fn too_early(run: &[Step]) -> Option<(usize, usize)> {
    run.iter().enumerate().find_map(|(early, step)| {
        let Step::Again(of, ..) = step else { return None };
        let behind = run[early..].iter().position(|step| match step {
            Step::Deliver(_, probe) | Step::Again(_, _, probe) => probe.is(of),
            _ => false,
        });
        behind.map(|behind| (early, early + behind))
    })
}

/// Says what comes out of a [`source()`]. Clones are the same script.
#[derive(Clone)]
pub struct Script(Arc<Mutex<State>>);

impl Script {
    /// Hands out this message. The generation is the one that lives then.
    pub fn deliver<P: Properties>(&self, message: MessageBuilder<P>) -> Probe {
        let probe = Probe::default();
        let build = Box::new(|generation| message.generation(generation).build());
        self.step(Step::Deliver(build, probe.clone()));
        probe
    }

    /// Does nothing for so long.
    pub fn wait(&self, time: Duration) {
        self.step(Step::Wait(time));
    }

    /// Ends the stream, as if the source had been closed.
    pub fn end(&self) {
        self.step(Step::End(Ok(())));
    }

    /// Ends the stream, as if the source could not go on.
    pub fn fail(&self, error: impl Into<BoxError>) {
        self.step(Step::End(Err(error.into())));
    }

    /// At once: the stream is pending, whatever else was said, until [`resume`](Self::resume).
    pub fn stall(&self) {
        self.change(|state| state.stalled = true);
    }

    /// At once: goes on after a [`stall`](Self::stall).
    pub fn resume(&self) {
        self.change(|state| state.stalled = false);
    }

    /// At once: the connection is lost and made again, and the broker gives what was out to somebody else: it is stale,
    /// and counts no more against the window.
    pub fn new_generation(&self) {
        let mut out = Vec::new();
        self.change(|state| out = state.renew());
        out.iter().for_each(Probe::cut);
    }

    /// At once: the connection is lost and made again. What was handed out and is not settled is stale, and comes again,
    /// in order and before all else, marked as redelivered. So does what was settled, if the answer to that is still to
    /// come ([`Reply`]).
    pub fn disconnect(&self) {
        self.disconnect_as(Again::new());
    }

    /// [`disconnect`](Self::disconnect), with a mark and a count of attempts of your own.
    pub fn disconnect_as(&self, again: Again) {
        let mut out = Vec::new();
        self.change(|state| {
            out = state.renew();
            for lost in out.iter().rev() {
                state.steps.push_front(Step::Again(lost.clone(), again, lost.comes_again()));
            }
        });
        out.iter().for_each(Probe::cut);
    }

    /// Hands out the message of this probe once more, whatever became of it: a duplicate, or what a broker does with a
    /// delivery that was released. Marked as redelivered.
    ///
    /// # Panics
    /// The stream panics if the message was not handed out before by this script.
    pub fn deliver_again(&self, probe: &Probe) -> Probe {
        self.deliver_again_as(probe, Again::new())
    }

    /// [`deliver_again`](Self::deliver_again), with a mark and a count of attempts of your own.
    ///
    /// # Panics
    /// The stream panics if the message was not handed out before by this script.
    pub fn deliver_again_as(&self, probe: &Probe, again: Again) -> Probe {
        let next = probe.comes_again();
        self.step(Step::Again(probe.clone(), again, next.clone()));
        next
    }

    /// Hands out this message twice, as if it had been published twice.
    pub fn deliver_twice<P: Properties>(&self, message: MessageBuilder<P>) -> [Probe; 2] {
        let first = self.deliver(message);
        let second = self.deliver_again_as(&first, Again::new().unmarked());
        [first, second]
    }

    /// At once: puts the deliveries that are still to come in another order, as far as no wait and no end stands between
    /// them. The same seed, the same order.
    pub fn reorder(&self, seed: u64) {
        self.change(|state| {
            let mut chance = seed;
            let steps = state.steps.make_contiguous();
            for run in steps.split_mut(|step| !step.is_delivery()) {
                for last in (1..run.len()).rev() {
                    // Constants of a common linear congruential generator; its upper bits are the good ones.
                    chance = chance
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let other = usize::try_from(chance >> 33).unwrap_or(0) % (last + 1);
                    run.swap(last, other);
                }
                // Nothing comes again before it has come.
                while let Some((early, late)) = too_early(run) {
                    run.swap(early, late);
                }
            }
        });
    }

    /// At once: what settlements are answered from now on, where a probe says nothing else
    /// ([`Probe::reply_with`]).
    pub fn reply_with(&self, reply: Reply) {
        self.change(|state| state.reply = Some(reply));
    }

    /// At once: gives the answers that are [held](Reply::held), in the order of the deliveries.
    pub fn let_through(&self) {
        let out: Vec<_> = self.0.lock().out.values().map(|out| out.probe.clone()).collect();
        for probe in out {
            probe.let_through();
        }
    }

    /// How many deliveries of the live generation are handed out and not settled.
    pub fn unsettled(&self) -> usize {
        self.0.lock().unsettled()
    }

    /// The source's name and nature, its drain signal and its observer.
    pub fn origin(&self) -> Arc<Origin> {
        self.0.lock().generation.origin().clone()
    }

    fn step(&self, step: Step) {
        self.change(|state| state.steps.push_back(step));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.0.lock();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Script")
            .field("steps", &state.steps.len())
            .field("unsettled", &state.unsettled())
            .field("generation", &state.generation.number())
            .finish_non_exhaustive()
    }
}
