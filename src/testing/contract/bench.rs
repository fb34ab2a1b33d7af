//! One case under way: the queue, the source, and what was taken.

use std::{
    borrow::Cow,
    collections::VecDeque,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::{Rig, SourceFault};
use crate::{
    BoxError, Delivery, Drain, Event, Generation, Message, Origin, Outcome, Settlement,
    source::{Handle, Source, SourceError, State},
};

pub(super) type Result<T = (), E = SourceFault> = std::result::Result<T, E>;

/// A case under way.
pub(super) struct Bench<'a, R: Rig> {
    case: &'static str,
    pub(super) rig: &'a mut R,
    open: Option<Open<R::Source>>,
    /// How many messages were published.
    published: usize,
}

/// The source that is checked now.
struct Open<S> {
    source: Pin<Box<S>>,
    handle: Handle,
    reports: Arc<Reports>,
    /// Taken while something else was waited for.
    early: VecDeque<Delivery>,
    /// Settled here, and dropped here.
    settled: usize,
    dropped: usize,
}

/// What the source has reported.
#[derive(Default)]
pub(super) struct Reports(Mutex<Seen>);

#[derive(Clone, Default)]
pub(super) struct Seen {
    settled: usize,
    dropped: usize,
    pub(super) reconnecting: usize,
    pub(super) connected: Vec<u64>,
}

impl Reports {
    fn hear(&self, event: &Event<'_>) {
        let mut seen = self.0.lock();
        match event {
            Event::Settled { .. } => seen.settled += 1,
            Event::Dropped => seen.dropped += 1,
            Event::Reconnecting { .. } => seen.reconnecting += 1,
            Event::Connected { generation } => seen.connected.push(*generation),
            _ => {}
        }
    }
}

/// The messages of a case are told by their numbers. None that are out at a time share a key: a queue with groups would
/// keep them back.
pub(super) fn message(number: usize) -> Message {
    Message::builder(text(number)).key(format!("key-{}", number % 16)).build()
}

fn text(number: usize) -> String {
    format!("message-{number}")
}

/// The number of a message.
pub(super) fn number(delivery: &Delivery) -> Option<usize> {
    let payload = std::str::from_utf8(delivery.message().payload()).ok()?;
    payload.strip_prefix("message-")?.parse().ok()
}

impl<'a, R: Rig> Bench<'a, R> {
    pub(super) fn new(rig: &'a mut R, case: &'static str) -> Self {
        Self { case, rig, open: None, published: 0 }
    }

    pub(super) fn fault<T>(&self, what: impl Into<Cow<'static, str>>) -> Result<T> {
        Err(SourceFault { case: self.case, what: what.into() })
    }

    /// What the rig was asked for.
    pub(super) fn done<T>(&self, result: Result<T, BoxError>) -> Result<T> {
        result.or_else(|error| self.fault(format!("the rig failed: {error}")))
    }

    /// An empty queue, so many messages in it, and a source with this window.
    pub(super) async fn begin(&mut self, window: usize, messages: usize) -> Result {
        let emptied = self.rig.empty().await;
        self.done(emptied)?;
        self.publish(messages).await?;
        self.consume(window).await
    }

    /// So many messages more.
    pub(super) async fn publish(&mut self, messages: usize) -> Result {
        for _ in 0..messages {
            self.publish_this(message(self.published)).await?;
            self.published += 1;
        }
        Ok(())
    }

    pub(super) async fn publish_this(&mut self, message: Message) -> Result {
        let published = self.rig.publish(message).await;
        self.done(published)
    }

    /// Another source.
    pub(super) async fn consume(&mut self, window: usize) -> Result {
        let source = self.rig.consume(window).await;
        let source = Box::pin(self.done(source)?);
        let handle = source.handle();
        let reports = Arc::new(Reports::default());
        let hears = reports.clone();
        handle.origin().observe(Arc::new(move |_: &Origin, event: &Event<'_>| hears.hear(event)));
        let open = Open { source, handle, reports, early: VecDeque::new(), settled: 0, dropped: 0 };
        self.open = Some(open);
        if self.handle().origin().window() != window {
            return self.fault("its origin does not tell the window that was asked for");
        }
        let (patience, mut health) = (self.rig.patience(), self.handle().watch());
        let connected = health.wait_for(|health| matches!(health.state, State::Connected { .. }));
        if !matches!(timeout(patience, connected).await, Ok(Ok(_))) {
            return self.fault("its health does not say that it is connected");
        }
        Ok(())
    }

    fn open(&mut self) -> &mut Open<R::Source> {
        self.open.as_mut().expect("a case begins with a source")
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.open.as_ref().expect("a case begins with a source").handle
    }

    /// What the source has reported.
    pub(super) fn seen(&mut self) -> Seen {
        self.open().reports.0.lock().clone()
    }

    /// The next delivery within this time; `Err`: the stream ended.
    async fn next_within(&mut self, time: Duration) -> Option<Result<Delivery, ()>> {
        let open = self.open();
        if let Some(delivery) = open.early.pop_front() {
            return Some(Ok(delivery));
        }
        let next = poll_fn(|cx| open.source.as_mut().poll_next(cx));
        timeout(time, next).await.ok().map(|next| next.ok_or(()))
    }

    /// The next delivery.
    pub(super) async fn next(&mut self) -> Result<Delivery> {
        match self.next_within(self.rig.patience()).await {
            Some(Ok(delivery)) => Ok(delivery),
            Some(Err(())) => self.fault("its stream ended, and nobody had asked for it"),
            None => {
                self.fault("a message did not come, or did not come again: it is lost, or nobody was woken")
            }
        }
    }

    /// The next delivery, which is this message.
    pub(super) async fn next_is(&mut self, expected: usize) -> Result<Delivery> {
        let delivery = self.next().await?;
        match number(&delivery) {
            Some(number) if number == expected => Ok(delivery),
            found => {
                let found = found.map_or_else(|| "something else".to_owned(), text);
                self.fault(format!("{found} came in the place of {}", text(expected)))
            }
        }
    }

    /// So many deliveries, in any order: each of these messages once.
    pub(super) async fn next_are(
        &mut self,
        expected: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<Delivery>> {
        let mut expected: Vec<_> = expected.into_iter().collect();
        let mut taken = Vec::new();
        while !expected.is_empty() {
            let delivery = self.next().await?;
            let number = number(&delivery);
            let Some(place) = expected.iter().position(|expected| Some(*expected) == number) else {
                let found = number.map_or_else(|| "something else".to_owned(), text);
                return self.fault(format!("{found} came, which was decided, or is out already"));
            };
            expected.swap_remove(place);
            taken.push(delivery);
        }
        Ok(taken)
    }

    /// Nothing comes for a while; `what` it is otherwise.
    pub(super) async fn nothing(&mut self, what: &'static str) -> Result {
        match self.next_within(self.rig.quiet()).await {
            None => Ok(()),
            Some(Ok(delivery)) => {
                let came = number(&delivery).map_or_else(|| "a message".to_owned(), text);
                self.fault(format!("{what}: {came} came"))
            }
            Some(Err(())) => self.fault("its stream ended, and nobody had asked for it"),
        }
    }

    /// Settles a delivery of the live generation, and looks at the report.
    pub(super) async fn settle(&mut self, delivery: Delivery, outcome: Outcome) -> Result {
        let patience = self.rig.patience();
        self.open().settled += 1;
        let confirms = self.handle().origin().capabilities().settlement_confirmed;
        // Nobody polls the stream meanwhile.
        match timeout(patience, delivery.settle(outcome)).await {
            Ok(Ok(Settlement::Confirmed)) => Ok(()),
            Ok(Ok(Settlement::HandedOver)) if !confirms => Ok(()),
            Ok(Ok(Settlement::HandedOver)) => {
                self.fault("a settlement was only handed over, and its broker is said to confirm")
            }
            Ok(Ok(lost)) => self.fault(format!("a settlement of the live generation was {lost:?}")),
            Ok(Err(error)) => self.fault(format!("a settlement failed: {error}")),
            Err(_) => {
                self.fault("nobody told what became of a settlement: it waits for the stream to be polled")
            }
        }
    }

    /// Settles a delivery of a generation that has ended.
    pub(super) async fn settle_late(&mut self, delivery: Delivery, outcome: Outcome) -> Result {
        let patience = self.rig.patience();
        self.open().settled += 1;
        match timeout(patience, delivery.settle(outcome)).await {
            Ok(Ok(Settlement::Stale)) => Ok(()),
            _ => self.fault("a settlement of a generation that had ended was not told to be stale"),
        }
    }

    pub(super) fn drop_delivery(&mut self, delivery: Delivery) {
        self.open().dropped += 1;
        drop(delivery);
    }

    pub(super) async fn ack_all(&mut self, deliveries: impl IntoIterator<Item = Delivery>) -> Result {
        for delivery in deliveries {
            self.settle(delivery, Outcome::Ack).await?;
        }
        Ok(())
    }

    /// Waits for the end of a generation, whoever notices it.
    pub(super) async fn over(&mut self, generation: &Generation) -> Result {
        let (patience, open) = (self.rig.patience(), self.open());
        let mut over = pin!(generation.over());
        let over = poll_fn(|cx| {
            loop {
                if over.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                match open.source.as_mut().poll_next(cx) {
                    Poll::Ready(Some(delivery)) => open.early.push_back(delivery),
                    Poll::Ready(None) | Poll::Pending => return Poll::Pending,
                }
            }
        });
        match timeout(patience, over).await {
            Ok(()) => {
                // Handed out before the end was known.
                let (stale, early) =
                    open.early.drain(..).partition::<VecDeque<_>, _>(|early| early.message().is_stale());
                (open.early, open.dropped) = (early, open.dropped + stale.len());
                Ok(())
            }
            Err(_) => self.fault("the connection was cut, and the generation of its deliveries lives on"),
        }
    }

    /// The stream ends by itself.
    pub(super) async fn stream_ends(&mut self) -> Result {
        match self.next_within(self.rig.patience()).await {
            Some(Err(())) => Ok(()),
            Some(Ok(_)) => self.fault("it hands out what was not published"),
            None => self.fault("it cannot go on, and its stream does not end"),
        }
    }

    /// Asks for the end, and gives back what is handed out until the stream has ended.
    pub(super) async fn close(&mut self, drain: Drain) -> Result<Vec<Delivery>> {
        self.handle().close(drain);
        let mut last = Vec::new();
        loop {
            match self.next_within(self.rig.patience()).await {
                Some(Ok(delivery)) => last.push(delivery),
                Some(Err(())) => return Ok(last),
                None => return self.fault("it was closed, and its stream does not end"),
            }
        }
    }

    /// The source does not close yet.
    pub(super) async fn is_not_closed(&mut self) -> Result {
        let (quiet, open) = (self.rig.quiet(), self.open());
        match timeout(quiet, poll_fn(|cx| open.source.as_mut().poll_closed(cx))).await {
            Err(_) => Ok(()),
            Ok(_) => self.fault("it was closed before all was settled: what is decided then is lost"),
        }
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&mut self) -> Result<Result<(), SourceError>> {
        let (patience, open) = (self.rig.patience(), self.open());
        match timeout(patience, poll_fn(|cx| open.source.as_mut().poll_closed(cx))).await {
            Ok(closed) => Ok(closed),
            Err(_) => self.fault("`poll_closed` never ends"),
        }
    }

    /// Closes it well, with nothing left to settle, and looks at what it leaves behind.
    pub(super) async fn end(&mut self, left: usize) -> Result {
        let last = self.close(Drain::Finish).await?;
        if !last.is_empty() {
            return self.fault("it hands out more than was published, or more than once");
        }
        self.ended_well(left).await
    }

    /// It is closed, and all is settled: looks at what it leaves behind.
    pub(super) async fn ended_well(&mut self, left: usize) -> Result {
        if let Err(error) = self.closed().await? {
            return self.fault(format!("it was asked to end, and says that it failed: {error}"));
        }
        if !matches!(self.handle().health().state, State::Closed { error: None }) {
            return self.fault("it has ended as it was asked to, and its health does not say so");
        }
        let seen = self.seen();
        let open = self.open();
        if (seen.settled, seen.dropped) != (open.settled, open.dropped) {
            let what = "it does not report each settlement to its origin, once: as settled, or as dropped";
            return self.fault(what);
        }
        self.open = None;
        self.has_left(left).await
    }

    /// Drops the source.
    pub(super) fn drop_source(&mut self) {
        self.open = None;
    }

    /// So many messages are in the queue, if that can be known.
    pub(super) async fn has_left(&mut self, left: usize) -> Result {
        let pause = self.rig.quiet() / 10;
        let mut waited = Duration::ZERO;
        loop {
            let ready = self.rig.ready().await;
            match self.done(ready)? {
                Some(ready) if ready != left => {
                    if waited > self.rig.patience() {
                        return self
                            .fault(format!("it leaves {ready} messages in the queue, and not {left}"));
                    }
                    sleep(pause).await;
                    waited += pause;
                }
                _ => return Ok(()),
            }
        }
    }
}
