//! A service that is played by hand.

#![allow(dead_code, reason = "each test file uses its own part of it")]

use std::{
    collections::{HashMap, HashSet},
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tower::{Service, ServiceExt};
use tower_mq_delivery::{BoxError, Message, Turn};
use tower_mq_partition::{Partition, PartitionLayer};

pub(crate) type Layer = PartitionLayer<Message>;

/// All modes, named.
pub(crate) fn modes(n: usize) -> [(&'static str, Layer); 6] {
    [
        ("by_key", Layer::by_key(n)),
        ("by_key inline", Layer::by_key(n).inline()),
        ("per_key", Layer::per_key(n)),
        ("per_key inline", Layer::per_key(n).inline()),
        ("unordered", Layer::unordered(n)),
        ("unordered inline", Layer::unordered(n).inline()),
    ]
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Trick {
    PanicsInReady,
    PanicsInCall,
    PanicsInPoll,
    /// Passes its turn at its first poll.
    Passes,
    /// Parks at its first poll, until it is told to wake up.
    Parks,
    /// Whoever is to be called with it finds that the service has failed.
    FailsReady,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) tricks: HashMap<u8, Trick>,
    pub(crate) not_ready: bool,
    pub(crate) started: Vec<u8>,
    pub(crate) dropped: Vec<u8>,
    pub(crate) turns: HashMap<u8, Turn>,
    pub(crate) clones: usize,
    next: Option<Trick>,
    finished: HashSet<u8>,
    awake: HashSet<u8>,
    wakers: Vec<Waker>,
}

#[derive(Clone, Default)]
pub(crate) struct Stage(Arc<Mutex<State>>);

impl Stage {
    pub(crate) fn new(tricks: &[(u8, Trick)]) -> Self {
        let stage = Self::default();
        stage.0.lock().tricks = tricks.iter().copied().collect();
        stage
    }

    pub(crate) fn service(&self) -> Player {
        Player { stage: self.clone(), ready: false }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock();
        let changed = change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        changed
    }

    /// Lets this delivery end.
    pub(crate) async fn finish(&self, id: u8) {
        self.change(|state| state.finished.insert(id));
        quiet().await;
    }

    pub(crate) async fn wake(&self, id: u8) {
        self.change(|state| state.awake.insert(id));
        quiet().await;
    }

    pub(crate) fn started(&self) -> Vec<u8> {
        self.0.lock().started.clone()
    }

    pub(crate) fn dropped(&self) -> Vec<u8> {
        self.0.lock().dropped.clone()
    }

    pub(crate) fn clones(&self) -> usize {
        self.0.lock().clones
    }

    /// Whether a clone of the service is left anywhere.
    pub(crate) fn is_deserted(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(crate) fn turn(&self, id: u8) -> Turn {
        self.0.lock().turns[&id].clone()
    }

    async fn until(&self, id: u8, set: fn(&State) -> &HashSet<u8>) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if set(&state).contains(&id) {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Everything that can happen has happened: a paused clock moves only then.
pub(crate) async fn quiet() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) struct Player {
    stage: Stage,
    ready: bool,
}

impl Clone for Player {
    fn clone(&self) -> Self {
        self.stage.0.lock().clones += 1;
        Self { stage: self.stage.clone(), ready: false }
    }
}

struct Running(Stage, u8);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.lock().dropped.push(self.1);
    }
}

impl Service<Message> for Player {
    type Response = u8;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<u8, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut state = self.stage.0.lock();
        match state.next.take() {
            Some(Trick::PanicsInReady) => panic!("planned"),
            Some(Trick::FailsReady) => return Poll::Ready(Err("worn out".into())),
            _ => {}
        }
        if state.not_ready {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: Message) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        let id = message.payload()[0];
        let stage = self.stage.clone();
        let trick = {
            let mut state = stage.0.lock();
            state.started.push(id);
            state.turns.insert(id, message.turn().clone());
            state.tricks.get(&id).copied()
        };
        assert!(trick != Some(Trick::PanicsInCall), "planned");
        let running = Running(stage.clone(), id);
        Box::pin(async move {
            let _running = running;
            match trick {
                Some(Trick::PanicsInPoll) => panic!("planned"),
                Some(Trick::Passes) => message.turn().pass(),
                Some(Trick::Parks) => {
                    let _parked = message.turn().park();
                    stage.until(id, |state| &state.awake).await;
                }
                _ => {}
            }
            stage.until(id, |state| &state.finished).await;
            Ok(id)
        })
    }
}

pub(crate) fn message(id: u8, key: impl Into<Option<u8>>) -> Message {
    Message::builder(vec![id]).maybe_key(key.into().map(|key| vec![key])).build()
}

/// The next readiness of the service is as bad as this.
pub(crate) fn next_ready(stage: &Stage, trick: Trick) {
    stage.change(|state| state.next = Some(trick));
}

pub(crate) type Response = JoinHandle<Result<u8, BoxError>>;

/// Calls, and polls the response in a task of its own.
pub(crate) async fn call(service: &mut Partition<Player, Message>, message: Message) -> Response {
    let response = service.ready().await.expect("ready").call(message);
    let task = tokio::spawn(response);
    quiet().await;
    task
}
