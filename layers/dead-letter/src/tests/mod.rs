mod contract;
mod copies;
mod endings;
mod errors;
mod model;

use std::{
    collections::VecDeque,
    future::pending,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Service, ServiceExt, service_fn, util::ServiceFn};
use tower_mq_delivery::{
    BoxError, Capabilities, Event, Generation, Message, NotStored, Origin, Outcome, Publication, Receipt,
};

use crate::{DeadLetter, DeadLetterLayer};

/// What the target does with one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Confirm,
    /// There is no such queue, or it is full: an error that says so.
    Refuse,
    /// The connection is lost, before or after the copy was stored.
    Lose {
        stored: bool,
    },
    /// The confirmation does not come.
    Hang {
        stored: bool,
    },
    NeverReady,
    NotReady,
    PanicInReady,
    PanicInCall,
    PanicInPoll {
        stored: bool,
    },
    /// Confirmed, and the future panics when it is dropped.
    PanicInDrop,
    /// Confirmed, and the publisher panics when it is dropped.
    PanicInEnd,
}
use Act::*;

#[derive(Debug, thiserror::Error)]
#[error("there is no such queue")]
struct Missing(#[source] NotStored);

/// A publisher that follows a script, and confirms when it has come to its end.
#[derive(Clone, Default)]
struct Target(Arc<Played>);

#[derive(Default)]
struct Played {
    script: Mutex<VecDeque<Act>>,
    stored: Mutex<Vec<Publication>>,
    tries: AtomicUsize,
    calls: AtomicUsize,
    times: Mutex<Vec<Instant>>,
    open: Arc<AtomicUsize>,
}

impl Target {
    fn new(script: impl IntoIterator<Item = Act>) -> Self {
        let target = Self::default();
        target.0.script.lock().extend(script);
        target
    }

    /// The publisher, which knows nothing of the tests.
    fn publisher(&self) -> Publisher {
        Publisher { target: self.clone(), act: None, panics: false }
    }

    fn copies(&self) -> usize {
        self.0.stored.lock().len()
    }

    fn tries(&self) -> usize {
        self.0.tries.load(Ordering::Relaxed)
    }

    fn calls(&self) -> usize {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// Futures that are neither done nor dropped.
    fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    fn times(&self) -> Vec<Instant> {
        self.0.times.lock().clone()
    }
}

struct Publisher {
    target: Target,
    /// What the try that this instance was readied for is to come to.
    act: Option<Act>,
    panics: bool,
}

impl Clone for Publisher {
    fn clone(&self) -> Self {
        self.target.publisher()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        assert!(!self.panics, "in the end");
    }
}

impl Service<Publication> for Publisher {
    type Response = Receipt;
    type Error = BoxError;
    type Future = Playing;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let played = &self.target.0;
        let act = *self.act.get_or_insert_with(|| {
            played.tries.fetch_add(1, Ordering::Relaxed);
            played.times.lock().push(Instant::now());
            played.script.lock().pop_front().unwrap_or(Confirm)
        });
        match act {
            NeverReady => Poll::Ready(Err("it has ended".into())),
            NotReady => Poll::Pending,
            PanicInReady => panic!("in poll_ready"),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, copy: Publication) -> Playing {
        let act = self.act.take().expect("it was made ready");
        let played = self.target.0.clone();
        played.calls.fetch_add(1, Ordering::Relaxed);
        assert!(act != PanicInCall, "in call");
        self.panics = act == PanicInEnd;
        played.open.fetch_add(1, Ordering::Relaxed);
        let open = played.open.clone();
        let playing = async move {
            if let Confirm
            | PanicInDrop
            | PanicInEnd
            | Lose { stored: true }
            | Hang { stored: true }
            | PanicInPoll { stored: true } = act
            {
                played.stored.lock().push(copy);
            }
            match act {
                Refuse => Err(Missing(NotStored).into()),
                Lose { .. } => Err(io::Error::other("the connection was lost").into()),
                Hang { .. } => pending().await,
                PanicInPoll { .. } => panic!("in poll"),
                _ => Ok(Receipt::new()),
            }
        };
        Playing { playing: Box::pin(playing), open, panics: act == PanicInDrop }
    }
}

/// A try under way.
struct Playing {
    playing: Pin<Box<dyn Future<Output = Result<Receipt, BoxError>> + Send>>,
    open: Arc<AtomicUsize>,
    panics: bool,
}

impl Future for Playing {
    type Output = Result<Receipt, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.playing.as_mut().poll(cx)
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        assert!(!self.panics, "in drop");
    }
}

/// A source of messages that writes down what is reported.
struct Source {
    generation: Arc<Generation>,
    events: Arc<Mutex<Vec<&'static str>>>,
}

impl Source {
    fn new() -> Self {
        let origin = Arc::new(Origin::new("orders", "test", 8, Capabilities::unknown()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            heard.lock().push(match event {
                Event::DeadLettered { reason, .. } => {
                    assert_eq!(*reason, "no such order");
                    "dead"
                }
                Event::NotDeadLettered { given_up: false, .. } => "again",
                Event::NotDeadLettered { given_up: true, .. } => "given up",
                Event::Panicked { message: Some(_) } => "panicked",
                _ => "something else",
            });
        }));
        Self { generation: Generation::first(origin), events }
    }

    fn message(&self) -> Message {
        Message::builder("two teas").key("table-7").attempt(1).generation(self.generation.clone()).build()
    }

    fn events(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.events.lock())
    }
}

async fn rejects(_: Message) -> Result<Outcome, BoxError> {
    Ok(Outcome::reject("no such order"))
}

/// `layer.layer_fn(f)`: the layer around a function.
trait LayerFn: Sized {
    fn layer_fn<F>(&self, function: F) -> DeadLetter<ServiceFn<F>, Self::Publisher>;
    type Publisher;
}

impl<P: Clone> LayerFn for DeadLetterLayer<P> {
    type Publisher = P;

    fn layer_fn<F>(&self, function: F) -> DeadLetter<ServiceFn<F>, P> {
        tower::Layer::layer(self, service_fn(function))
    }
}

fn layer(target: &Target) -> DeadLetterLayer<Publisher> {
    DeadLetterLayer::new(target.publisher())
}

/// What becomes of a message that is rejected.
async fn rejected(layer: DeadLetterLayer<Publisher>, source: &Source) -> Outcome {
    layer.layer_fn(rejects).oneshot(source.message()).await.expect("errors end here")
}

const SECOND: Duration = Duration::from_secs(1);
