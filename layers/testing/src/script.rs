//! A source that does what a test says.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};
use tower_mq_delivery::{
    Acker, BoxError, Capabilities, Delivery, Generation, Message, MessageBuilder, Origin, Properties,
};

use crate::probe::{Duty, Probe};

/// A stream of deliveries, and the script that says what comes out of it.
///
/// What the script is told is done in this order, each step when the stream is polled and the one before is done:
/// deliveries, waits, the end. Stalls and new generations happen at once.
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
    let state =
        State { steps: VecDeque::new(), unsettled: 0, window, generation, stalled: false, waker: None };
    let state = Arc::new(Mutex::new(state));
    (Scripted { state: state.clone(), waiting: None, end: None }, Script(state))
}

struct State {
    steps: VecDeque<Step>,
    /// Of the live generation.
    unsettled: usize,
    window: usize,
    generation: Arc<Generation>,
    stalled: bool,
    waker: Option<Waker>,
}

enum Step {
    Deliver(Box<dyn FnOnce(Arc<Generation>) -> Message + Send>, Probe),
    Wait(Duration),
    End(Result<(), BoxError>),
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

    /// At once: the connection is lost and made again. What was handed out and is not settled is stale, and counts
    /// no more against the window.
    pub fn new_generation(&self) {
        self.change(|state| {
            state.generation = state.generation.next();
            state.unsettled = 0;
        });
    }

    /// How many deliveries of the live generation are handed out and not settled.
    pub fn unsettled(&self) -> usize {
        self.0.lock().unsettled
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
            .field("unsettled", &state.unsettled)
            .field("generation", &state.generation.number())
            .finish_non_exhaustive()
    }
}

/// A stream that does what its [`Script`] says. Made by [`source()`].
#[must_use = "streams do nothing unless polled"]
pub struct Scripted {
    state: Arc<Mutex<State>>,
    waiting: Option<Pin<Box<Sleep>>>,
    /// How the stream ended, until that was asked for.
    end: Option<Result<(), BoxError>>,
}

impl Scripted {
    /// The generation that lives now.
    pub fn generation(&self) -> Arc<Generation> {
        self.state.lock().generation.clone()
    }

    /// Takes nothing more, and waits until all that was handed out is settled; then says how the stream ended. An
    /// error is told once, and at once.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(Err(error)) = self.end.replace(Ok(())) {
            return Poll::Ready(Err(error));
        }
        let mut state = self.state.lock();
        if state.unsettled == 0 {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn deliver(&self, message: Message, probe: Probe) -> Delivery {
        probe.taken();
        let generation = message.generation().clone();
        let state = Arc::downgrade(&self.state);
        let number = generation.number();
        let settled = Box::new(move || settled(&state, number));
        let duty = Duty { probe, generation, settled: Some(settled) };
        Delivery::new(message, Acker::new(Arc::new(duty), 0))
    }
}

/// A delivery of this generation was settled.
fn settled(state: &Weak<Mutex<State>>, generation: u64) {
    let Some(state) = state.upgrade() else { return };
    let waker = {
        let mut state = state.lock();
        if state.generation.number() != generation {
            return;
        }
        state.unsettled -= 1;
        state.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Stream for Scripted {
    type Item = Delivery;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = self.get_mut();
        loop {
            if this.end.is_some() {
                return Poll::Ready(None);
            }
            let mut state = this.state.lock();
            state.waker = Some(cx.waker().clone());
            if state.stalled {
                return Poll::Pending;
            }
            if let Some(waiting) = &mut this.waiting {
                drop(state);
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.waiting = None;
                continue;
            }
            match state.steps.front() {
                None => return Poll::Pending,
                Some(Step::Deliver(..)) if state.unsettled >= state.window => return Poll::Pending,
                Some(_) => {}
            }
            match state.steps.pop_front() {
                Some(Step::Deliver(build, probe)) => {
                    state.unsettled += 1;
                    let generation = state.generation.clone();
                    drop(state);
                    return Poll::Ready(Some(this.deliver(build(generation), probe)));
                }
                Some(Step::Wait(time)) => this.waiting = Some(Box::pin(sleep(time))),
                Some(Step::End(end)) => this.end = Some(end),
                None => {}
            }
        }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("script", &Script(self.state.clone())).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use tokio::time::Instant;
    use tower_mq_delivery::Outcome;

    use super::*;

    fn next(orders: &mut Scripted) -> Option<Delivery> {
        match Pin::new(orders).poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    fn poll_closed(orders: &mut Scripted) -> Poll<Result<(), BoxError>> {
        orders.poll_closed(&mut Context::from_waker(Waker::noop()))
    }

    fn order(text: &'static str) -> MessageBuilder {
        Message::builder(text)
    }

    #[tokio::test(start_paused = true)]
    async fn steps_are_done_in_order_and_in_their_time() {
        let (mut orders, script) = source();
        let start = Instant::now();
        let a = script.deliver(order("a"));
        script.wait(Duration::from_secs(5));
        let b = script.deliver(order("b"));
        script.end();
        assert!(a.taken_at().is_none());
        while let Some(delivery) = orders.next().await {
            let _settling = delivery.settle(Outcome::Ack);
        }
        assert_eq!(a.taken_at(), Some(start));
        assert_eq!(b.taken_at(), Some(start + Duration::from_secs(5)));
        assert!(matches!(poll_closed(&mut orders), Poll::Ready(Ok(()))));
    }

    #[test]
    fn no_more_than_the_window_is_handed_out() {
        let (mut orders, script) = source_of(Origin::new("orders", "test", 1, Capabilities::unknown()));
        let probes = ["a", "b"].map(|text| script.deliver(order(text)));
        let a = next(&mut orders).expect("the first");
        assert!(next(&mut orders).is_none());
        assert_eq!(script.unsettled(), 1);
        let _settling = a.settle(Outcome::Ack);
        probes[0].assert_settled(&Outcome::Ack);
        drop(next(&mut orders).expect("the second"));
        probes[1].assert_dropped();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_stream_goes_on_where_it_was() {
        let (mut orders, script) = source();
        let _probe = script.deliver(order("a"));
        script.stall();
        assert!(next(&mut orders).is_none());
        let resumed = script.clone();
        tokio::spawn(async move { resumed.resume() });
        assert!(orders.next().await.is_some(), "it is woken");
    }

    #[test]
    fn a_new_generation_makes_stale_what_is_out_and_frees_the_window() {
        let (mut orders, script) = source_of(Origin::new("orders", "test", 1, Capabilities::unknown()));
        let [first, _second] = ["a", "b"].map(|text| script.deliver(order(text)));
        let a = next(&mut orders).expect("the first");
        script.new_generation();
        assert!(a.message().is_stale());
        let b = next(&mut orders).expect("the window is free");
        assert_eq!(b.message().generation().number(), 2);
        drop(a);
        assert!(first.is_stale());
        assert_eq!(script.unsettled(), 1, "a stale settlement is not that of the live one");
    }

    #[test]
    fn a_failed_stream_says_why_and_one_that_was_closed_waits_for_the_last_settlement() {
        let (mut orders, script) = source();
        script.fail("the queue was deleted");
        assert!(next(&mut orders).is_none());
        let Poll::Ready(Err(error)) = poll_closed(&mut orders) else { panic!("an error") };
        assert_eq!(error.to_string(), "the queue was deleted");

        let (mut orders, script) = source();
        let _probe = script.deliver(order("a"));
        let a = next(&mut orders);
        assert!(poll_closed(&mut orders).is_pending());
        drop(a);
        assert!(poll_closed(&mut orders).is_ready());
    }
}
