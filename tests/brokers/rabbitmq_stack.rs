//! The documented stack with everything in it, on a real broker, in real time: errors, panics, time-outs, messages that
//! nobody can read, dead letters that are not stored, connections that are cut, and ends of all kinds.
//!
//! The same model watches as in `tests/whole_stack.rs`. What happens is not the same each time.

#[path = "../support/node.rs"]
mod node;
#[path = "../support/promises/mod.rs"]
mod promises;
#[path = "../support/proxy.rs"]
#[allow(dead_code, unreachable_pub)]
mod proxy;

use std::{collections::BTreeMap, time::Duration};

use node::{KINDS, TestQueue, address, is_full, url, url_at};
use promises::{Letters, Plan, Run, Watched, World, quietly, stack};
use proxy::Proxy;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;
use tower_mq::{
    BoxError, Drain, Publication,
    dedup::MemoryStore,
    serve,
    source::{
        Reconnect,
        rabbitmq::{Publisher, Publishing, Queue},
    },
};

type Result<T = (), E = BoxError> = std::result::Result<T, E>;

const PATIENCE: Duration = Duration::from_secs(60);

struct Stage {
    plan: Plan,
    world: World,
    store: MemoryStore,
    orders: TestQueue,
    dead: TestQueue,
    publisher: Publisher,
    proxy: Proxy,
}

fn plan(seed: u64, batches: bool) -> Plan {
    let run = |lasts, drain, anew| Run {
        lasts: Duration::from_millis(lasts),
        drain,
        drain_timeout: Duration::from_secs(2),
        anew,
    };
    let mut plan = Plan::new(seed, batches);
    plan.letters = (150, 0);
    plan.copy_timeout = Duration::from_secs(2);
    plan.runs = vec![run(600, Drain::Finish, false), run(600, Drain::Release, true)];
    plan
}

impl Stage {
    async fn new(kind: &str, plan: Plan) -> Result<Self> {
        Ok(Self {
            world: World::new(plan.seed, plan.rules(false)),
            plan,
            store: MemoryStore::new(),
            orders: TestQueue::declare("stack", kind, &[]).await?,
            dead: TestQueue::declare("stack-dead", kind, &[]).await?,
            publisher: Publishing::new().connect(&url()).await?,
            proxy: Proxy::start(address())?,
        })
    }

    async fn publish(&self) -> Result {
        let publisher = self.publisher.to(self.orders.name.clone());
        for _ in 0..self.plan.letters.0 {
            publisher.clone().oneshot(Publication::new(self.world.letter())).await?;
        }
        Ok(())
    }

    async fn run(&mut self, run: &Run, signal: impl Future + Send) -> Result {
        if run.anew {
            self.store = MemoryStore::new();
        }
        self.world.begin(run.anew);
        let reconnect = Reconnect::new().backoff(Duration::from_millis(10), Duration::from_millis(50));
        let window = u16::try_from(self.plan.window)?;
        let queue = Queue::new(self.orders.name.clone()).prefetch(window).reconnect(reconnect);
        let orders = queue.connect(&url_at(self.proxy.address())).await?;
        let letters = Letters::new(self.publisher.to(self.dead.name.clone()), &self.world);
        let stack = stack(&self.plan, &self.world, &self.store, letters);
        let serving = serve(Watched::new(orders, &self.world), stack)
            .with_graceful_shutdown(async {
                signal.await;
                self.world.draining(run.drain);
            })
            .on_shutdown(run.drain)
            .drain_timeout(run.drain_timeout)
            .observer(self.world.observer());
        let cuts = async {
            while !self.world.lock().calm {
                sleep(Duration::from_millis(600)).await;
                self.world.lock().cover("connection lost");
                self.proxy.cut();
            }
            std::future::pending().await
        };
        let report = timeout(PATIENCE, async {
            tokio::select! { report = serving => report, report = cuts => report }
        });
        let report = report.await.map_err(|_| "promise 7: the run does not end")??;
        // What was abandoned is dropped by the tasks that have it.
        sleep(Duration::from_millis(100)).await;
        self.world.ended(&report);
        Ok(())
    }

    async fn play(&mut self) -> Result {
        self.publish().await?;
        for run in self.plan.runs.clone() {
            self.run(&run, sleep(run.lasts)).await?;
        }
        self.world.lock().calm = true;
        let last = Run {
            lasts: PATIENCE,
            drain: Drain::Finish,
            drain_timeout: Duration::from_secs(10),
            anew: false,
        };
        let world = self.world.clone();
        self.run(&last, done(&world)).await?;
        self.world.emptied();
        self.orders.becomes_ready(0).await?;
        // Of some nobody knows whether they are there.
        let (copies, unsure) = self.world.copies();
        let dead = self.dead.ready().await?;
        if !(copies..=copies + unsure).contains(&dead) {
            return Err(
                format!("promise 3: {dead} dead letters, {copies} confirmed and {unsure} unsure").into()
            );
        }
        Ok(())
    }
}

/// Waits until all is acked, and nothing comes again any more.
async fn done(world: &World) {
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        sleep(Duration::from_millis(20)).await;
        if !world.is_done() {
            since = Instant::now();
        }
    }
}

async fn keeps_its_promises(batches: bool) -> Result {
    quietly();
    let seeds = if is_full() { 40 } else { 2 };
    let mut covered: BTreeMap<&str, u64> = BTreeMap::new();
    for (seed, kind) in (0..seeds).flat_map(|seed| KINDS.map(|kind| (seed, kind))) {
        let mut stage = Stage::new(kind, plan(seed, batches)).await?;
        let played = stage.play().await;
        let mut seen = stage.world.lock();
        if played.is_err() || !seen.broken.is_empty() {
            seen.broken.truncate(12);
            panic!("{kind}: {played:?}\n{}\n{:#?}", seen.broken.join("\n"), stage.plan);
        }
        for (what, count) in &seen.covered {
            *covered.entry(*what).or_default() += count;
        }
    }
    println!("{covered:#?}");
    // What happens in every run. The rest is left to chance, and to the runs on a paused clock.
    for what in ["connection lost", "dead lettered", "drain to release", "duplicate", "stale", "unreadable"] {
        assert!(covered.contains_key(what), "{what} never happens: {covered:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_stack_keeps_its_promises() -> Result {
    keeps_its_promises(false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_stack_with_batches_keeps_its_promises() -> Result {
    keeps_its_promises(true).await
}
