mod cancel;
mod contract;
mod model;
mod remote;
mod twins;

use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Sleep;
use tower_mq_delivery::{BoxError, Capabilities, Event, Generation, Message, MessageBuilder, Origin};

use crate::{Begun, Id, MemoryLease, MemoryStore, Store};

/// A source of messages that writes down what is reported of them.
struct Source {
    generation: Arc<Generation>,
    events: Arc<Mutex<Vec<&'static str>>>,
}

impl Source {
    fn new() -> Self {
        Self::called("orders")
    }

    fn called(name: &'static str) -> Self {
        let origin = Arc::new(Origin::new(name, "test", 8, Capabilities::unknown()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            heard.lock().push(match event {
                Event::Duplicate { .. } => "duplicate",
                Event::Unidentified { .. } => "unidentified",
                Event::StoreFailed { .. } => "store failed",
                Event::NotHandled { .. } => "not handled",
                Event::Warned { .. } => "warned",
                _ => "something else",
            });
        }));
        Self { generation: Generation::first(origin), events }
    }

    fn build(&self) -> MessageBuilder {
        Message::builder("").generation(self.generation.clone())
    }

    fn message(&self, id: &'static str) -> Message {
        self.build().id(id).build()
    }

    fn events(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.events.lock())
    }
}

/// A store that has to be asked, as one in another place: it answers when it is let, or fails.
#[derive(Clone)]
struct Remote(Arc<State>);

struct State {
    memory: MemoryStore,
    /// How long it takes to answer; zero: the next time that it is asked.
    takes: Duration,
    down: AtomicBool,
    /// It never answers.
    silent: AtomicBool,
    asked: AtomicUsize,
}

impl Remote {
    fn new() -> Self {
        Self::taking(Duration::from_millis(1))
    }

    fn taking(takes: Duration) -> Self {
        Self(Arc::new(State {
            memory: MemoryStore::new(),
            takes,
            down: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
        }))
    }

    fn set_down(&self, down: bool) {
        self.0.down.store(down, Relaxed);
    }

    fn set_silent(&self) {
        self.0.silent.store(true, Relaxed);
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Relaxed)
    }

    fn begin_elsewhere(&self, id: &str) -> (Id, MemoryLease) {
        let id = Id::of(id).within("orders");
        match self.0.memory.begin_now(id) {
            Some(Begun::New(lease)) => (id, lease),
            _ => panic!("it is not new"),
        }
    }
}

async fn pause(time: Duration) {
    match time {
        Duration::ZERO => tokio::task::yield_now().await,
        time => tokio::time::sleep(time).await,
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Store for Remote {
    type Lease = MemoryLease;
    type Begin = Boxed<Result<Begun<MemoryLease>, BoxError>>;
    type Finish = Boxed<Result<(), BoxError>>;
    type Wait = Sleep;

    fn begin(&self, id: Id) -> Self::Begin {
        let state = self.0.clone();
        Box::pin(async move {
            state.asked.fetch_add(1, Relaxed);
            pause(state.takes).await;
            if state.silent.load(Relaxed) {
                pending::<()>().await;
            }
            match state.down.load(Relaxed) {
                true => Err("the store is down".into()),
                false => state.memory.begin(id).await,
            }
        })
    }

    fn finish(&self, id: Id, lease: MemoryLease) -> Self::Finish {
        let state = self.0.clone();
        // At once, so that a future that is dropped changes nothing.
        let finished = match state.down.load(Relaxed) {
            true => Err("the store is down".into()),
            false => {
                drop(state.memory.finish(id, lease));
                Ok(())
            }
        };
        Box::pin(async move {
            if state.takes > Duration::ZERO {
                pause(state.takes).await;
            }
            finished
        })
    }

    fn forget(&self, id: Id, lease: MemoryLease) {
        self.0.memory.forget(id, lease);
    }

    fn wait(&self, _: Id, _: u32) -> Sleep {
        tokio::time::sleep(Duration::from_millis(100))
    }
}
