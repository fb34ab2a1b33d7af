//! A handler whose calls are completed by hand.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tower_mq_delivery::{BoxError, Work};
use tower_service::Service;

/// A handler, and the gate that its calls wait at until they are let through by hand, in any order.
///
/// It handles what a handler is given: a `Message`, or a `Batch<Message>`.
///
/// ```
/// use tower::Service;
/// use tower_mq_delivery::{Message, Outcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (mut handler, gate) = tower_mq_testing::gate();
/// let tea = tokio::spawn(handler.call(Message::builder("two teas").key("table-7").build()));
/// let bill = tokio::spawn(handler.call(Message::builder("the bill").key("table-9").build()));
/// gate.next_of("table-9").await.answer(Outcome::Ack);
/// gate.next().await.fail("no tea");
/// assert_eq!(bill.await.unwrap().unwrap(), Outcome::Ack);
/// assert!(tea.await.unwrap().is_err());
/// # }
/// ```
pub fn gate<W: Work>() -> (Gated<W>, Gate<W>) {
    let shared = Arc::new(Shared { waiting: Mutex::new(Some(VecDeque::new())), arrived: Notify::new() });
    (Gated(shared.clone()), Gate(shared))
}

struct Shared<W: Work> {
    /// `None`: the gate was dropped.
    waiting: Mutex<Option<VecDeque<Call<W>>>>,
    arrived: Notify,
}

/// The handler behind a [`Gate`]. Always ready.
pub struct Gated<W: Work>(Arc<Shared<W>>);

impl<W: Work> Clone for Gated<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: Work> fmt::Debug for Gated<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("waiting", &self.0.waiting.lock().as_ref().map(VecDeque::len)).finish()
    }
}

impl<W: Work> Service<W> for Gated<W> {
    type Response = W::Answer;
    type Error = BoxError;
    type Future = GatedFuture<W>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, work: W) -> Self::Future {
        let (answer, answered) = oneshot::channel();
        if let Some(waiting) = &mut *self.0.waiting.lock() {
            waiting.push_back(Call { work, answer });
        }
        self.0.arrived.notify_waiters();
        GatedFuture(answered)
    }
}

/// The response of a [`Gated`] handler.
#[derive(Debug)]
pub struct GatedFuture<W: Work>(oneshot::Receiver<Result<W::Answer, BoxError>>);

impl<W: Work> Future for GatedFuture<W> {
    type Output = Result<W::Answer, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or_else(|_| Err("the gate was dropped".into())))
    }
}

/// Lets the calls of its handler through. Made by [`gate()`]. Calls that nobody waits for any more are not shown.
///
/// Dropped, all calls fail, those to come too.
pub struct Gate<W: Work>(Arc<Shared<W>>);

impl<W: Work> Gate<W> {
    /// The first call that waits; waits for one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&self) -> Call<W> {
        self.find(|_| true).await
    }

    /// The first call that waits and has a message with this key; waits for one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next_of(&self, key: impl AsRef<[u8]>) -> Call<W> {
        let key = key.as_ref();
        self.find(|work| work.messages().iter().any(|message| message.key().is_some_and(|k| k == key))).await
    }

    /// The first call that waits, if there is one.
    pub fn try_next(&self) -> Option<Call<W>> {
        self.take(|_| true)
    }

    /// How many calls wait at the gate.
    pub fn waiting(&self) -> usize {
        self.0.waiting.lock().iter().flatten().filter(|call| !call.is_cancelled()).count()
    }

    async fn find(&self, wanted: impl Fn(&W) -> bool) -> Call<W> {
        loop {
            // Made before the look: a `Notified` hears what is said from its creation on.
            let arrived = self.0.arrived.notified();
            if let Some(call) = self.take(&wanted) {
                return call;
            }
            arrived.await;
        }
    }

    fn take(&self, wanted: impl Fn(&W) -> bool) -> Option<Call<W>> {
        let mut waiting = self.0.waiting.lock();
        let waiting = waiting.as_mut()?;
        let index = waiting.iter().position(|call| !call.is_cancelled() && wanted(&call.work))?;
        waiting.remove(index)
    }
}

impl<W: Work> Drop for Gate<W> {
    fn drop(&mut self) {
        // Outside the lock: what is dropped may be anything.
        let waiting = self.0.waiting.lock().take();
        drop(waiting);
    }
}

impl<W: Work> fmt::Debug for Gate<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("waiting", &self.waiting()).finish()
    }
}

/// A call that waits at the [`Gate`]. Dropped, it fails.
#[must_use = "the call fails when this is dropped"]
pub struct Call<W: Work> {
    work: W,
    answer: oneshot::Sender<Result<W::Answer, BoxError>>,
}

impl<W: Work> Call<W> {
    /// What the handler was given.
    pub fn request(&self) -> &W {
        &self.work
    }

    /// Completes the call.
    pub fn answer(self, answer: impl Into<W::Answer>) {
        // Nobody may wait for it any more.
        let _ = self.answer.send(Ok(answer.into()));
    }

    /// Completes the call with an error.
    pub fn fail(self, error: impl Into<BoxError>) {
        let _ = self.answer.send(Err(error.into()));
    }

    /// Nobody waits for the answer any more.
    pub fn is_cancelled(&self) -> bool {
        self.answer.is_closed()
    }
}

impl<W: Work> fmt::Debug for Call<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = self.work.messages();
        f.debug_struct("Call").field("messages", &messages).field("cancelled", &self.is_cancelled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use tower_mq_delivery::{Message, Outcome};

    use super::*;

    fn message(key: &'static str) -> Message {
        Message::builder("").key(key).build()
    }

    #[tokio::test]
    async fn calls_are_completed_in_any_order() {
        let (mut handler, gate) = gate();
        let [a, b, c] = ["a", "b", "a"].map(|key| handler.call(message(key)));
        assert_eq!(gate.waiting(), 3);
        gate.next_of("b").await.answer(Outcome::Ack);
        gate.next().await.answer(Outcome::Release);
        gate.next_of("a").await.fail("no");
        assert!(gate.try_next().is_none());
        assert_eq!((a.await.expect("a"), b.await.expect("b")), (Outcome::Release, Outcome::Ack));
        assert_eq!(c.await.expect_err("c").to_string(), "no");
    }

    #[tokio::test]
    async fn without_a_gate_calls_fail() {
        let (mut handler, gate) = gate();
        let before = handler.call(message("a"));
        drop(gate);
        assert!(before.await.is_err() && handler.call(message("a")).await.is_err());
    }

    #[tokio::test]
    async fn it_waits_for_a_call_and_skips_those_that_were_cancelled() {
        let (mut handler, gate) = gate();
        drop(handler.call(message("a")));
        assert_eq!(gate.waiting(), 0);
        let next = tokio::spawn(async move { gate.next().await.request().key().cloned() });
        tokio::task::yield_now().await;
        let _response = handler.call(message("b"));
        assert_eq!(next.await.expect("it does not panic"), Some("b".into()));
    }
}
