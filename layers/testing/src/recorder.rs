//! What runs, how many at a time, and in which order.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use parking_lot::Mutex;
use pin_project::pin_project;
use tower_layer::Layer;
use tower_mq_delivery::{Carry, Message};
use tower_service::Service;

type Key = Option<Bytes>;

/// A layer that records what runs inside of it: put it around the handler of a test. Clones record together.
///
/// A call runs from `call` until its future has ended or is dropped.
///
/// ```
/// use tower::{Layer, Service, service_fn};
/// use tower_mq_delivery::{BoxError, Message};
/// use tower_mq_testing::Recorder;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let recorder = Recorder::new();
/// let mut handler = recorder.layer(service_fn(async |_: Message| Ok::<_, BoxError>(())));
/// handler.call(Message::builder("two teas").key("table-7").build()).await?;
/// handler.call(Message::builder("the bill").key("table-7").build()).await?;
/// assert_eq!(recorder.of("table-7"), ["two teas", "the bill"]);
/// assert_eq!(recorder.peak(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    started: Vec<(Key, Bytes)>,
    running: Running,
    of_key: HashMap<Bytes, Running>,
    finished: usize,
    cancelled: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Running {
    now: usize,
    peak: usize,
}

impl Running {
    fn start(&mut self) {
        self.now += 1;
        self.peak = self.peak.max(self.now);
    }
}

impl Recorder {
    /// Nothing is recorded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The payloads of all messages, in the order in which their calls began.
    pub fn payloads(&self) -> Vec<Bytes> {
        self.0.lock().started.iter().map(|(_, payload)| payload.clone()).collect()
    }

    /// The payloads of this key, in the order in which their calls began.
    pub fn of(&self, key: impl AsRef<[u8]>) -> Vec<Bytes> {
        let key = key.as_ref();
        let of_key = |started: &&(Key, Bytes)| started.0.as_ref().is_some_and(|k| k == key);
        self.0.lock().started.iter().filter(of_key).map(|(_, payload)| payload.clone()).collect()
    }

    /// The keys that were seen, each once, in no order.
    pub fn keys(&self) -> Vec<Bytes> {
        self.0.lock().of_key.keys().cloned().collect()
    }

    /// The most calls that ran at a time.
    pub fn peak(&self) -> usize {
        self.0.lock().running.peak
    }

    /// The most calls of one key that ran at a time, over all keys. One, if every key is in order.
    pub fn peak_of_a_key(&self) -> usize {
        self.0.lock().of_key.values().map(|running| running.peak).max().unwrap_or(0)
    }

    /// How many calls run now.
    pub fn running(&self) -> usize {
        self.0.lock().running.now
    }

    /// How many calls came to their end.
    pub fn finished(&self) -> usize {
        self.0.lock().finished
    }

    /// How many calls were dropped before their end.
    pub fn cancelled(&self) -> usize {
        self.0.lock().cancelled
    }

    fn start(&self, messages: &[Message]) -> Guard {
        let keys: Vec<Bytes> = messages.iter().filter_map(|message| message.key().cloned()).collect();
        let mut record = self.0.lock();
        record.running.start();
        record
            .started
            .extend(messages.iter().map(|message| (message.key().cloned(), message.payload().clone())));
        for (index, key) in keys.iter().enumerate() {
            // A batch with many members of one key is one call of that key.
            if !keys[..index].contains(key) {
                record.of_key.entry(key.clone()).or_default().start();
            }
        }
        Guard { recorder: self.clone(), keys, finished: false }
    }
}

/// A call runs while this is held.
struct Guard {
    recorder: Recorder,
    keys: Vec<Bytes>,
    finished: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut record = self.recorder.0.lock();
        record.running.now -= 1;
        for (index, key) in self.keys.iter().enumerate() {
            if !self.keys[..index].contains(key)
                && let Some(running) = record.of_key.get_mut(key)
            {
                running.now -= 1;
            }
        }
        match self.finished {
            true => record.finished += 1,
            false => record.cancelled += 1,
        }
    }
}

impl<S> Layer<S> for Recorder {
    type Service = Recorded<S>;

    fn layer(&self, inner: S) -> Recorded<S> {
        Recorded { inner, recorder: self.clone() }
    }
}

/// A service whose calls are recorded by a [`Recorder`].
#[derive(Clone, Debug)]
pub struct Recorded<S> {
    inner: S,
    recorder: Recorder,
}

impl<S, R> Service<R> for Recorded<S>
where
    S: Service<R>,
    R: Carry,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = RecordedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let guard = self.recorder.start(request.messages());
        RecordedFuture { inner: self.inner.call(request), guard: Some(guard) }
    }
}

/// The response of a [`Recorded`] service.
#[pin_project]
pub struct RecordedFuture<F> {
    #[pin]
    inner: F,
    guard: Option<Guard>,
}

impl<F: Future> Future for RecordedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.inner.poll(cx));
        if let Some(mut guard) = this.guard.take() {
            guard.finished = true;
        }
        Poll::Ready(output)
    }
}

impl<F> fmt::Debug for RecordedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedFuture").field("running", &self.guard.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tower_mq_delivery::Outcome;

    use super::*;
    use crate::gate;

    #[tokio::test]
    async fn peaks_are_counted_per_key_and_in_all_and_cancelled_calls_are_told_from_finished_ones() {
        let (handler, gate) = gate();
        let recorder = Recorder::new();
        let mut handler = recorder.layer(handler);
        let call = |key: &'static str| Message::builder(key).key(key).build();
        let [a, b] = ["a", "b"].map(|key| handler.call(call(key)));
        assert_eq!((recorder.running(), recorder.peak(), recorder.peak_of_a_key()), (2, 2, 1));
        drop(a);
        gate.next().await.answer(Outcome::Ack);
        b.await.expect("it was answered");
        assert_eq!((recorder.running(), recorder.finished(), recorder.cancelled()), (0, 1, 1));
        let _two = ["a", "a"].map(|key| handler.call(call(key)));
        assert_eq!((recorder.peak(), recorder.peak_of_a_key()), (2, 2));
        assert_eq!(recorder.of("a"), ["a", "a", "a"]);
    }
}
