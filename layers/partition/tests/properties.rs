//! Order, bounds and answers, for random deliveries in every mode, against a small model.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, Either, select},
    stream::FuturesUnordered,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use tower::{Layer, Service, ServiceExt};
use tower_mq_delivery::{BoxError, Message};
use tower_mq_partition::{LaneKey, PartitionLayer};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    ByKey,
    PerKey,
    Unordered,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Answers,
    Fails,
    Panics,
}

/// One delivery: what the handler does with it, and what its caller does.
#[derive(Clone, Debug)]
struct Plan {
    key: Option<u8>,
    /// Panics in `call`, in spite of everything else.
    panics_in_call: bool,
    waits: u8,
    end: End,
    /// The caller goes away after so many polls of its own.
    cancelled_after: Option<u8>,
    /// Which of the handles calls.
    handle: usize,
}

#[derive(Clone, Debug)]
struct Case {
    n: usize,
    capacity: usize,
    /// Each response in a task of its own, or all in one.
    spawned: bool,
    /// How many reservations are taken and thrown away on the way.
    thrown_away: usize,
    plans: Vec<Plan>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let end = prop_oneof![6 => Just(End::Answers), 1 => Just(End::Fails), 1 => Just(End::Panics)];
    let fields = (
        proptest::option::weighted(0.8, 0..5u8),
        proptest::bool::weighted(0.05),
        0..4u8,
        end,
        proptest::option::weighted(0.2, 0..4u8),
        0..3usize,
    );
    fields.prop_map(|(key, panics_in_call, waits, end, cancelled_after, handle)| Plan {
        key,
        panics_in_call,
        waits,
        end,
        cancelled_after,
        handle,
    })
}

fn case() -> impl Strategy<Value = Case> {
    (1..5usize, 1..12usize, any::<bool>(), 0..3usize, proptest::collection::vec(plan(), 0..60)).prop_map(
        |(n, capacity, spawned, thrown_away, plans)| Case { n, capacity, spawned, thrown_away, plans },
    )
}

/// What the handlers did.
#[derive(Default)]
struct Record {
    running: usize,
    peak: usize,
    busy: HashMap<usize, usize>,
    starts: Vec<usize>,
    overlaps: Vec<usize>,
}

struct World {
    plans: Vec<Plan>,
    /// By delivery: all of one group are in order.
    groups: Vec<usize>,
    virtual_time: bool,
    record: Mutex<Record>,
}

/// From `call` to the end of the future, however it ends.
struct Running(Arc<World>, usize);

impl Running {
    fn start(world: &Arc<World>, id: usize) -> Self {
        let group = world.groups[id];
        let mut record = world.record.lock();
        record.running += 1;
        record.peak = record.peak.max(record.running);
        record.starts.push(id);
        let busy = record.busy.entry(group).or_default();
        *busy += 1;
        if *busy > 1 {
            record.overlaps.push(id);
        }
        drop(record);
        Self(world.clone(), id)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut record = self.0.record.lock();
        record.running -= 1;
        *record.busy.entry(self.0.groups[self.1]).or_default() -= 1;
    }
}

struct Handler {
    world: Arc<World>,
    ready: bool,
}

impl Clone for Handler {
    fn clone(&self) -> Self {
        Self { world: self.world.clone(), ready: false }
    }
}

impl Service<Message> for Handler {
    type Response = usize;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<usize, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: Message) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        let id = usize::from(u16::from_be_bytes([message.payload()[0], message.payload()[1]]));
        let plan = self.world.plans[id].clone();
        let running = Running::start(&self.world, id);
        assert!(!plan.panics_in_call, "planned");
        let virtual_time = self.world.virtual_time;
        Box::pin(async move {
            let _running = running;
            match virtual_time {
                true if plan.waits > 0 => tokio::time::sleep(Duration::from_millis(plan.waits.into())).await,
                _ => yields(plan.waits).await,
            }
            match plan.end {
                End::Answers => Ok(id),
                End::Fails => Err("planned".into()),
                End::Panics => panic!("planned"),
            }
        })
    }
}

async fn yields(times: u8) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    Answer(usize),
    Error(String),
    Panic,
    Cancelled,
}

fn quiet() {
    static QUIET: OnceLock<()> = OnceLock::new();
    QUIET.get_or_init(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&"planned") {
                usual(info);
            }
        }));
    });
}

fn groups(mode: Mode, case: &Case) -> Vec<usize> {
    let mut keyless = 0;
    let group = |(id, plan): (usize, &Plan)| match (mode, plan.key) {
        (Mode::ByKey, Some(key)) => LaneKey::of([key]).lane(case.n).expect("a lane"),
        (Mode::ByKey, None) => {
            keyless += 1;
            (keyless - 1) % case.n
        }
        (Mode::PerKey, Some(key)) => usize::from(key),
        (Mode::PerKey, None) | (Mode::Unordered, _) => 1000 + id,
    };
    case.plans.iter().enumerate().map(group).collect()
}

async fn check(mode: Mode, inline: bool, virtual_time: bool, case: Case) {
    let layer = match mode {
        Mode::ByKey => PartitionLayer::by_key(case.n),
        Mode::PerKey => PartitionLayer::per_key(case.n),
        Mode::Unordered => PartitionLayer::unordered(case.n),
    };
    let layer = layer.capacity(case.capacity);
    let layer = if inline { layer.inline() } else { layer };
    let world = Arc::new(World {
        groups: groups(mode, &case),
        plans: case.plans.clone(),
        virtual_time,
        record: Mutex::default(),
    });
    let service = layer.layer(Handler { world: world.clone(), ready: false });
    let mut handles = [service.clone(), service.clone(), service];

    let mut together = FuturesUnordered::new();
    let mut tasks = Vec::new();
    for (id, plan) in case.plans.iter().enumerate() {
        if id < case.thrown_away {
            let mut other = handles[0].clone();
            _ = other.ready().now_or_never();
        }
        let message = Message::builder(u16::try_from(id).expect("small").to_be_bytes().to_vec());
        let message = message.maybe_key(plan.key.map(|key| vec![key])).build();
        let handle = &mut handles[plan.handle];
        // A full partition is only ever emptied by those who poll.
        let response = loop {
            match select(std::pin::pin!(handle.ready()), together.next()).await {
                Either::Left((ready, _)) => break ready.expect("ready").call(message),
                Either::Right((Some((id, seen)), _)) => expected(&case, id, &seen),
                Either::Right((None, ready)) => break ready.await.expect("ready").call(message),
            }
        };
        let cancelled_after = plan.cancelled_after;
        let seen = async move {
            let cancel = async {
                match cancelled_after {
                    Some(polls) => yields(polls).await,
                    None => std::future::pending().await,
                }
            };
            let answer = AssertUnwindSafe(response).catch_unwind();
            match select(std::pin::pin!(cancel), std::pin::pin!(answer)).await {
                Either::Left(_) => (id, Seen::Cancelled),
                Either::Right((Ok(Ok(answer)), _)) => (id, Seen::Answer(answer)),
                Either::Right((Ok(Err(error)), _)) => (id, Seen::Error(error.to_string())),
                Either::Right((Err(_), _)) => (id, Seen::Panic),
            }
        };
        if case.spawned {
            tasks.push(tokio::spawn(seen));
        } else {
            together.push(Box::pin(seen));
        }
    }
    let [mut last, others @ ..] = handles;
    drop(others);
    for task in tasks {
        let (id, seen) = task.await.expect("no panic of its own");
        expected(&case, id, &seen);
    }
    while let Some((id, seen)) = together.next().await {
        expected(&case, id, &seen);
    }

    // Nothing leaked: all places can be taken at once.
    let mut all = Vec::new();
    for _ in 0..case.capacity.max(case.n) {
        last.ready().await.expect("ready");
        let fresh = last.clone();
        all.push(std::mem::replace(&mut last, fresh));
    }
    assert!(last.ready().now_or_never().is_none(), "more places than the capacity");
    drop((all, last));

    // Everything ends: nobody keeps a clone of the handler.
    for _ in 0..100_000 {
        if Arc::strong_count(&world) == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&world), 1, "something is kept for ever");
    let record = world.record.lock();
    assert_eq!(record.running, 0);
    assert!(record.peak <= case.n, "{} at a time", record.peak);
    assert_eq!(record.overlaps, [], "ran beside others of their group");
    let mut last_of: HashMap<usize, usize> = HashMap::new();
    for &id in &record.starts {
        // What has no order with others starts at any time.
        if let Some(before) = last_of.insert(world.groups[id], id) {
            assert!(before < id, "{id} after {before} in group {}", world.groups[id]);
        }
    }
    for (id, plan) in case.plans.iter().enumerate() {
        let starts = record.starts.iter().filter(|other| **other == id).count();
        assert!(starts == 1 || plan.cancelled_after.is_some() && starts == 0, "{id} ran {starts} times");
    }
}

fn expected(case: &Case, id: usize, seen: &Seen) {
    let plan = &case.plans[id];
    let planned = match plan.end {
        _ if plan.panics_in_call => Seen::Panic,
        End::Answers => Seen::Answer(id),
        End::Fails => Seen::Error("planned".to_owned()),
        End::Panics => Seen::Panic,
    };
    let cancelled = plan.cancelled_after.is_some() && *seen == Seen::Cancelled;
    assert!(cancelled || *seen == planned, "{id}: {seen:?} instead of {planned:?}");
}

async fn in_time(check: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(30), check).await.expect("hangs");
}

fn on_one_thread(mode: Mode, inline: bool, case: Case) {
    quiet();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(in_time(check(mode, inline, true, case)));
}

fn on_several_threads(mode: Mode, inline: bool, case: Case) {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    quiet();
    let runtime = RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build();
        runtime.expect("a runtime")
    });
    runtime.block_on(async {
        let task = tokio::spawn(in_time(check(mode, inline, false, case)));
        if let Err(error) = task.await {
            std::panic::resume_unwind(error.into_panic());
        }
    });
}

macro_rules! properties {
    ($($name:ident: $run:ident($mode:ident, $inline:literal);)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $name(case in case()) {
                    $run(Mode::$mode, $inline, case);
                }
            )*
        }
    };
}

properties! {
    lanes_keep_their_order_on_one_thread: on_one_thread(ByKey, false);
    lanes_keep_their_order_on_several_threads: on_several_threads(ByKey, false);
    inline_lanes_keep_their_order_on_one_thread: on_one_thread(ByKey, true);
    inline_lanes_keep_their_order_on_several_threads: on_several_threads(ByKey, true);
    keys_keep_their_order_on_one_thread: on_one_thread(PerKey, false);
    keys_keep_their_order_on_several_threads: on_several_threads(PerKey, false);
    inline_keys_keep_their_order_on_one_thread: on_one_thread(PerKey, true);
    inline_keys_keep_their_order_on_several_threads: on_several_threads(PerKey, true);
    unordered_deliveries_are_answered_on_one_thread: on_one_thread(Unordered, false);
    unordered_deliveries_are_answered_on_several_threads: on_several_threads(Unordered, false);
    inline_unordered_deliveries_are_answered_on_one_thread: on_one_thread(Unordered, true);
    inline_unordered_deliveries_are_answered_on_several_threads: on_several_threads(Unordered, true);
}
