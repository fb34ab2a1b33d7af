//! Random deliveries with few ids, against what must hold of each id.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message, Outcome};

use super::{Remote, Source};
use crate::{DedupLayer, MemoryStore, Store};

const TTL: Duration = Duration::from_millis(50);
const IDS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
struct Step {
    /// After the one before.
    after: u64,
    id: usize,
    takes: u64,
    end: End,
    /// Nobody waits any longer.
    dropped: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Ack,
    Release,
    Reject,
    Error,
    Panic,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        4 => Just(End::Ack),
        1 => Just(End::Release),
        1 => Just(End::Reject),
        1 => Just(End::Error),
        1 => Just(End::Panic),
    ];
    (0..30u64, 0..IDS.len(), 0..20u64, end, prop_oneof![3 => Just(None), 1 => (0..25u64).prop_map(Some)])
        .prop_map(|(after, id, takes, end, dropped)| Step { after, id, takes, end, dropped })
}

/// What is known of an id by those who only watch its handlers.
#[derive(Default)]
struct Known {
    running: bool,
    /// When a handler had acked it for the last time.
    acked: Option<Instant>,
}

type Ids = Arc<Mutex<HashMap<&'static str, Known>>>;

/// A handler of the id runs.
struct Run(Ids, &'static str);

impl Drop for Run {
    fn drop(&mut self) {
        self.0.lock().entry(self.1).or_default().running = false;
    }
}

async fn play<St>(store: St, ttl: Option<Duration>, steps: Vec<Step>)
where
    St: Store<Begin: Send, Finish: Send, Wait: Send, Lease: Send> + Send + Sync + 'static,
{
    let (source, ids) = (Source::new(), Ids::default());
    let layer = DedupLayer::new(store);
    let mut tasks = Vec::new();
    for Step { after, id, takes, end, dropped } in steps {
        tokio::time::sleep(Duration::from_millis(after)).await;
        let (id, watched) = (IDS[id], ids.clone());
        let handled = Arc::new(Mutex::new(false));
        let notes = handled.clone();
        let mut service = layer.layer(service_fn(move |_: Message| {
            let (ids, notes) = (watched.clone(), notes.clone());
            async move {
                *notes.lock() = true;
                let run = {
                    let mut watched = ids.lock();
                    let known = watched.entry(id).or_default();
                    assert!(!known.running, "two handlers of one id");
                    if let (Some(at), Some(ttl)) = (known.acked, ttl) {
                        assert!(at.elapsed() >= ttl, "handled again within its time");
                    }
                    known.running = true;
                    Run(ids.clone(), id)
                };
                tokio::time::sleep(Duration::from_millis(takes)).await;
                drop(run);
                match end {
                    End::Ack => {
                        ids.lock().entry(id).or_default().acked = Some(Instant::now());
                        Ok(Outcome::Ack)
                    }
                    End::Release => Ok(Outcome::Release),
                    End::Reject => Ok(Outcome::reject("no")),
                    End::Error => Err(BoxError::from("down")),
                    End::Panic => panic!("on purpose"),
                }
            }
        }));
        let (message, ids) = (source.message(id), ids.clone());
        tasks.push(tokio::spawn(async move {
            let call = async { service.ready().await.expect("ready").call(message).await };
            let limit = dropped.map_or(Duration::from_secs(60), Duration::from_millis);
            let outcome = match (tokio::time::timeout(limit, call).await, dropped) {
                (Ok(outcome), _) => outcome,
                (Err(_), Some(_)) => return,
                (Err(_), None) => panic!("it never ends"),
            };
            match (outcome, *handled.lock()) {
                (Ok(Outcome::Ack), false) => {
                    let watched = ids.lock();
                    let acked = watched.get(id).and_then(|known| known.acked).expect("acked unseen");
                    assert!(ttl.is_none_or(|ttl| acked.elapsed() < ttl + Duration::from_millis(5)));
                }
                (outcome, false) => panic!("not handled, and {outcome:?}"),
                (Ok(outcome), true) => assert_eq!(outcome.name(), end.name()),
                (Err(_), true) => assert_eq!(end.name(), "error"),
            }
        }));
    }
    for (task, panics) in tasks.into_iter().map(|task| (task, "on purpose")) {
        if let Err(error) = task.await {
            let panic = error.into_panic();
            let said = panic.downcast_ref::<&str>().copied().unwrap_or("something else");
            if said != panics {
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(ids.lock().values().all(|known| !known.running));
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Release => "release",
            Self::Reject => "reject",
            Self::Error => "error",
            Self::Panic => "panic",
        }
    }
}

fn run(play: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    // Panics on purpose say nothing.
    runtime.expect("a runtime").block_on(play);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_id_is_handled_twice_at_a_time_or_within_its_time(steps in prop::collection::vec(step(), 1..40)) {
        run(play(MemoryStore::new().ttl(TTL), Some(TTL), steps));
    }

    #[test]
    fn nor_with_a_store_that_takes_its_time(steps in prop::collection::vec(step(), 1..40)) {
        run(play(Remote::new(), Some(Duration::from_secs(3600)), steps));
    }

    #[test]
    fn a_store_that_is_full_loses_nothing_else(steps in prop::collection::vec(step(), 1..40)) {
        run(play(MemoryStore::new().capacity(1), None, steps));
    }
}
