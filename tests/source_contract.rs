//! The check of a source finds each broken promise, and none where all are kept.

use std::{
    collections::{HashSet, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::Stream;
use parking_lot::Mutex;
use tower_mq::{
    Acker, BoxError, Capabilities, Delivery, Event, Message, Origin, Outcome, Settle, Settlement, Settling,
    source::{
        Control, Handle, Source, SourceError,
        memory::{Broker, Consumer},
    },
    testing::contract::{self, Rig},
};

/// The in-process broker, and what its source does wrong.
#[derive(Debug, Default)]
struct InProcess {
    broker: Broker,
    wrong: Option<Wrong>,
    grouped: bool,
}

/// The promises that can be broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Reorders,
    ForgetsKeys,
    MixesKeys,
    CutsPayloads,
    SkipsEmptyPayloads,
    CountsFromTwo,
    MarksAll,
    MarksNone,
    NeverCounts,
    DeliversTwice,
    ExceedsItsWindow,
    WastesItsWindow,
    WaitsForTheFirst,
    AcksReleases,
    AcksDrops,
    ReleasesAcks,
    RetriesAtOnce,
    DiscardsRejects,
    RetriesRejects,
    NeverReports,
    ReportsLess,
    ReportsToNobody,
    TakesWhilePaused,
    StaysPaused,
    HandsOutToTheEnd,
    NeverEnds,
    EndsByItself,
    ClosesEarly,
    NeverCloses,
    FailsToClose,
    HidesItsEnd,
    HidesItsFailure,
    SwallowsItsEnd,
    LosesWhatWasOut,
    RepeatsAcks,
    SettlesLate,
    GenerationsLiveOn,
    HidesItsLosses,
}

impl Rig for InProcess {
    type Source = Bad;

    async fn empty(&mut self) -> Result<(), BoxError> {
        self.broker = Broker::new();
        Ok(())
    }

    async fn publish(&mut self, message: Message) -> Result<(), BoxError> {
        self.broker.publish("orders", message)?;
        Ok(())
    }

    async fn consume(&mut self, window: usize) -> Result<Bad, BoxError> {
        let queue = self.broker.queue("orders");
        let queue = if self.grouped { queue.grouped() } else { queue };
        let held = match self.wrong {
            Some(Wrong::ExceedsItsWindow) => window + 1,
            Some(Wrong::WastesItsWindow) => window - 1,
            _ => window,
        };
        Ok(Bad::new(queue.window(held).consume(), window, self.wrong))
    }

    async fn cut(&mut self) -> Result<bool, BoxError> {
        self.broker.disconnect_consumers();
        Ok(true)
    }

    async fn ruin(&mut self) -> Result<bool, BoxError> {
        self.broker.close();
        Ok(true)
    }

    async fn ready(&mut self) -> Result<Option<usize>, BoxError> {
        Ok(Some(self.broker.len("orders")))
    }

    async fn dead_letters(&mut self) -> Result<Option<usize>, BoxError> {
        Ok(Some(self.broker.len("orders.dead")))
    }
}

/// A consumer that breaks one promise.
struct Bad {
    inner: Consumer,
    /// What it shows of itself.
    control: Control,
    wrong: Option<Wrong>,
    /// To be handed out before anything else.
    next: VecDeque<Delivery>,
    taken: usize,
    /// Of this generation.
    generation: u64,
    /// What is out, and since how many deliveries.
    out: Arc<Mutex<Vec<usize>>>,
    acked: Arc<Mutex<HashSet<bytes::Bytes>>>,
    waker: Arc<Mutex<Option<Waker>>>,
    was_paused: bool,
}

impl Bad {
    fn new(inner: Consumer, window: usize, wrong: Option<Wrong>) -> Self {
        let origin = Origin::new("orders", "memory", window, *inner.capabilities());
        let control = Control::new(Arc::new(origin));
        control.connected(1);
        let (shows, hides) = (control.clone(), wrong);
        inner.handle().origin().observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            match (hides, event) {
                (Some(Wrong::ReportsToNobody), _) => {}
                (Some(Wrong::HidesItsLosses), Event::Reconnecting { .. }) => {}
                (_, Event::Connected { generation }) => shows.connected(*generation),
                (_, event) => shows.origin().report(event),
            }
        }));
        Self {
            inner,
            control,
            wrong,
            next: VecDeque::new(),
            taken: 0,
            generation: 1,
            out: Arc::default(),
            acked: Arc::default(),
            waker: Arc::default(),
            was_paused: false,
        }
    }

    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// Whether it shows a face of its own: what it does is then hidden, or reported to nobody.
    fn is_masked(&self) -> bool {
        use Wrong::{ExceedsItsWindow, HidesItsEnd, HidesItsLosses, ReportsToNobody, WastesItsWindow};
        [ExceedsItsWindow, WastesItsWindow, HidesItsEnd, HidesItsLosses, ReportsToNobody]
            .into_iter()
            .any(|w| self.is(w))
    }

    fn hand_out(&mut self, delivery: Delivery) -> Option<Delivery> {
        let number = self.taken;
        self.taken += 1;
        let (mut message, acker) = delivery.into_parts();
        let generation = message.generation().number();
        let begins = std::mem::replace(&mut self.generation, generation) != generation;
        match self.wrong? {
            Wrong::SkipsEmptyPayloads if message.payload().is_empty() => {
                let _settling = acker.settle(Outcome::Ack);
                return None;
            }
            Wrong::LosesWhatWasOut if begins => {
                let _settling = acker.settle(Outcome::Ack);
                return None;
            }
            Wrong::RepeatsAcks if begins => {
                let acked = self.acked.lock().iter().next().cloned();
                let again = acked.map(|payload| rebuilt(&message, |builder| builder, Some(payload)));
                self.next.extend(again.map(Delivery::detached));
            }
            Wrong::DeliversTwice => self.next.push_back(Delivery::detached(message.clone())),
            Wrong::ForgetsKeys => message = rebuilt(&message, |b| b.maybe_key(None::<&[u8]>), None),
            Wrong::MixesKeys if message.key().is_some_and(|key| key.is_empty()) => {
                message = rebuilt(&message, |b| b.maybe_key(None::<&[u8]>), None);
            }
            Wrong::CutsPayloads => {
                let payload = message.payload().slice(..message.payload().len().min(1 << 16));
                message = rebuilt(&message, |builder| builder, Some(payload));
            }
            Wrong::CountsFromTwo => message = rebuilt(&message, |b| b.attempt(2), None),
            Wrong::NeverCounts => message = rebuilt(&message, |b| b.attempt(1), None),
            Wrong::MarksAll => message = rebuilt(&message, |b| b.redelivered(true), None),
            Wrong::MarksNone => message = rebuilt(&message, |b| b.redelivered(false), None),
            Wrong::GenerationsLiveOn => {
                let shown = tower_mq::Generation::numbered(
                    Arc::new(Origin::new("orders", "memory", 4, Capabilities::unknown())),
                    generation,
                );
                message = rebuilt(&message, |b| b.generation(shown), None);
            }
            _ => {}
        }
        self.out.lock().push(number);
        let duty = BadDuty {
            wrong: self.wrong,
            acker: Mutex::new(Some(acker)),
            number,
            message: message.clone(),
            out: self.out.clone(),
            acked: self.acked.clone(),
            waker: self.waker.clone(),
        };
        Some(Delivery::new(message, Acker::new(Arc::new(duty), 0)))
    }
}

/// The message, with a difference.
fn rebuilt(
    message: &Message,
    change: impl FnOnce(tower_mq::MessageBuilder) -> tower_mq::MessageBuilder,
    payload: Option<bytes::Bytes>,
) -> Message {
    let builder = Message::builder(payload.unwrap_or_else(|| message.payload().clone()))
        .maybe_key(message.key().cloned())
        .maybe_attempt(message.attempt())
        .redelivered(message.redelivered())
        .generation(message.generation().clone());
    change(builder).build()
}

impl Stream for Bad {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = &mut *self;
        let handle = this.inner.handle();
        if this.is_masked() {
            match this.control.poll_demand(cx) {
                tower_mq::source::Demand::Pause => handle.pause(),
                tower_mq::source::Demand::Take => handle.resume(),
                tower_mq::source::Demand::Close(drain) => handle.close(drain),
                _ => {}
            }
        }
        if this.is(Wrong::TakesWhilePaused) {
            handle.resume();
        }
        this.was_paused |= handle.is_paused();
        if this.is(Wrong::StaysPaused) && this.was_paused && handle.origin().drain().is_none() {
            return Poll::Pending;
        }
        if this.is(Wrong::EndsByItself) && this.taken >= 7 {
            return Poll::Ready(None);
        }
        if let Some(next) = this.next.pop_front() {
            return Poll::Ready(Some(next));
        }
        let first = this.out.lock().iter().min().copied();
        if this.is(Wrong::WaitsForTheFirst) && first.is_some_and(|first| this.taken >= first + 4) {
            *this.waker.lock() = Some(cx.waker().clone());
            return match handle.origin().drain() {
                Some(_) => Poll::Ready(None),
                None => Poll::Pending,
            };
        }
        loop {
            let polled = Pin::new(&mut this.inner).poll_next(cx);
            return match polled {
                Poll::Ready(Some(delivery)) if this.is(Wrong::Reorders) && this.taken == 0 => {
                    // The second one goes first.
                    let second = Pin::new(&mut this.inner).poll_next(cx);
                    this.taken += 1;
                    match second {
                        Poll::Ready(Some(second)) => {
                            this.next.push_back(delivery);
                            Poll::Ready(Some(second))
                        }
                        _ => Poll::Ready(Some(delivery)),
                    }
                }
                Poll::Ready(Some(delivery)) if this.wrong.is_none() => Poll::Ready(Some(delivery)),
                Poll::Ready(Some(delivery)) => match this.hand_out(delivery) {
                    Some(delivery) => Poll::Ready(Some(delivery)),
                    None => continue,
                },
                Poll::Ready(None) if this.is(Wrong::NeverEnds) => Poll::Pending,
                Poll::Ready(None) if this.is(Wrong::SwallowsItsEnd) && handle.origin().drain().is_none() => {
                    Poll::Pending
                }
                Poll::Ready(None) if this.is(Wrong::HandsOutToTheEnd) => {
                    this.wrong = None;
                    Poll::Ready(Some(Delivery::detached(Message::new("message-0"))))
                }
                polled => polled,
            };
        }
    }
}

impl Source for Bad {
    fn handle(&self) -> Handle {
        match self.is_masked() {
            true => self.control.handle(),
            false => self.inner.handle(),
        }
    }

    fn poll_closed(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        let this = &mut *self;
        let closed = match this.wrong {
            Some(Wrong::NeverCloses) => return Poll::Pending,
            Some(Wrong::ClosesEarly) => return Poll::Ready(Ok(())),
            Some(Wrong::EndsByItself) => return Poll::Ready(Ok(())),
            Some(Wrong::FailsToClose) => {
                let error = SourceError::new(tower_mq::source::SourceErrorKind::Closed, "closed");
                return Pin::new(&mut this.inner).poll_closed(cx).map(|_| Err(error));
            }
            Some(Wrong::HidesItsFailure) => Pin::new(&mut this.inner).poll_closed(cx).map(|_| Ok(())),
            _ => Pin::new(&mut this.inner).poll_closed(cx),
        };
        if let Poll::Ready(closed) = &closed
            && this.is_masked()
            && !this.is(Wrong::HidesItsEnd)
        {
            let error = closed.as_ref().err().map(|error| BoxError::from(error.to_string()).into());
            this.control.closed(error);
        }
        closed
    }
}

/// Settles a delivery in a wrong way.
struct BadDuty {
    wrong: Option<Wrong>,
    acker: Mutex<Option<Acker>>,
    number: usize,
    message: Message,
    out: Arc<Mutex<Vec<usize>>>,
    acked: Arc<Mutex<HashSet<bytes::Bytes>>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl BadDuty {
    fn is_back(&self) {
        self.out.lock().retain(|number| *number != self.number);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

impl Settle for BadDuty {
    fn settle(&self, _: u64, outcome: Outcome) -> Settling {
        self.is_back();
        if let (Outcome::Ack, false) = (&outcome, self.message.is_stale()) {
            self.acked.lock().insert(self.message.payload().clone());
        }
        let acker = self.acker.lock().take().expect("it is settled once");
        let outcome = match (self.wrong, outcome) {
            (Some(Wrong::AcksReleases), Outcome::Release) => Outcome::Ack,
            (Some(Wrong::ReleasesAcks), Outcome::Ack) if self.number == 2 => Outcome::Release,
            (Some(Wrong::RetriesAtOnce), Outcome::Retry { .. }) => Outcome::Retry { after: Duration::ZERO },
            (Some(Wrong::DiscardsRejects), Outcome::Reject { .. }) => Outcome::Ack,
            (Some(Wrong::RetriesRejects), Outcome::Reject { .. }) => Outcome::Release,
            (_, outcome) => outcome,
        };
        let stale = self.message.is_stale();
        let settling = acker.settle(outcome);
        match self.wrong {
            Some(Wrong::NeverReports) => {
                let (sender, settling) = Settling::pending();
                Box::leak(Box::new(sender));
                settling
            }
            Some(Wrong::ReportsLess) => Settling::done(Ok(Settlement::HandedOver)),
            Some(Wrong::SettlesLate) if stale => Settling::done(Ok(Settlement::Confirmed)),
            _ => settling,
        }
    }

    fn dropped(&self, token: u64) -> Settling {
        match self.wrong {
            Some(Wrong::AcksDrops) => self.settle(token, Outcome::Ack),
            _ => {
                self.is_back();
                drop(self.acker.lock().take());
                Settling::done(Ok(Settlement::Confirmed))
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_in_process_broker_keeps_the_contract() {
    for grouped in [false, true] {
        contract::source(&mut InProcess { grouped, ..InProcess::default() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_broken_promise_is_found() {
    use Wrong::*;
    for (wrong, expected, case) in [
        (Reorders, "came in the place of", "was published"),
        (ForgetsKeys, "does not have the key", "was published"),
        (MixesKeys, "an empty key does not come", "odd"),
        (CutsPayloads, "a mebibyte does not come", "odd"),
        (SkipsEmptyPayloads, "is lost", "odd"),
        (CountsFromTwo, "the first attempt", "was published"),
        (MarksAll, "when it comes first", "was published"),
        (MarksNone, "is not marked as redelivered", "released"),
        (NeverCounts, "does not count as an attempt", "retried"),
        (DeliversTwice, "came in the place of", "was published"),
        (ExceedsItsWindow, "more than the window", "window"),
        (WastesItsWindow, "does not use its window", "window"),
        (WaitsForTheFirst, "one stuck delivery", "window"),
        (AcksReleases, "is lost", "released"),
        (AcksDrops, "is lost", "dropped"),
        (ReleasesAcks, "came in the place of message-3", "was published"),
        (RetriesAtOnce, "before its delay", "retried"),
        (DiscardsRejects, "0 are dead letters", "rejected"),
        (RetriesRejects, "what was rejected comes again", "rejected"),
        (NeverReports, "nobody told", "was published"),
        (ReportsLess, "only handed over", "was published"),
        (ReportsToNobody, "does not report each settlement", "was published"),
        (TakesWhilePaused, "takes while it is paused", "paused"),
        (StaysPaused, "did not come", "paused"),
        (HandsOutToTheEnd, "more than was published", "was published"),
        (NeverEnds, "its stream does not end", "was published"),
        (EndsByItself, "its stream ended", "was published"),
        (ClosesEarly, "its health does not say so", "was published"),
        (NeverCloses, "never ends", "was published"),
        (FailsToClose, "says that it failed", "was published"),
        (HidesItsEnd, "its health does not say so", "was published"),
        (HidesItsFailure, "without an error", "gone for good"),
        (SwallowsItsEnd, "its stream does not end", "gone for good"),
        (LosesWhatWasOut, "is lost", "cut"),
        (RepeatsAcks, "which was decided", "cut"),
        (SettlesLate, "not told to be stale", "cut"),
        (GenerationsLiveOn, "lives on", "cut"),
        (HidesItsLosses, "nobody was told that it is reconnecting", "cut"),
    ] {
        let mut rig = InProcess { wrong: Some(wrong), ..InProcess::default() };
        let fault = contract::find_source_fault(&mut rig).await.expect_err(expected);
        assert!(fault.what.contains(expected), "{wrong:?}: expected `{expected}`: {fault}");
        assert!(fault.case.contains(case), "{wrong:?}: expected it while `{case}`: {fault}");
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the source breaks the contract: a retry came before its delay was over (while a")]
async fn the_check_panics_with_the_fault() {
    let mut rig = InProcess { wrong: Some(Wrong::RetriesAtOnce), ..InProcess::default() };
    contract::source(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_rig_cannot_do_is_its_own_fault() {
    let fault = contract::find_source_fault(&mut Broken).await.expect_err("nothing works");
    assert_eq!(fault.what, "the rig failed: no broker");
}

/// A rig without a broker.
struct Broken;

impl Rig for Broken {
    type Source = Consumer;

    async fn empty(&mut self) -> Result<(), BoxError> {
        Err("no broker".into())
    }

    async fn publish(&mut self, _: Message) -> Result<(), BoxError> {
        Ok(())
    }

    async fn consume(&mut self, _: usize) -> Result<Consumer, BoxError> {
        Ok(Broker::new().queue("orders").consume())
    }
}
