//! The documented stack with everything in it, and everything going wrong: thousands of runs on the embedded broker, on a
//! paused clock, against a small model of the promises.
//!
//! A run that breaks a promise prints its seed: `TOWER_MQ_SEED=7 cargo test --features full --test whole_stack` runs it
//! alone.

#[path = "support/promises/mod.rs"]
mod promises;
#[path = "../layers/trace/tests/record/mod.rs"]
mod record;

use std::{
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use promises::{Letters, Plan, Run, Watched, World, quietly, stack};
use tokio::{
    runtime::Builder,
    time::{sleep, timeout},
};
use tower_mq::{Drain, Report, ServeError, dedup::MemoryStore, serve, source::memory::Broker};

/// Longer than any run takes, on a clock that jumps.
const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);

struct Stage {
    plan: Plan,
    world: World,
    broker: Broker,
    store: MemoryStore,
}

impl Stage {
    fn new(plan: Plan) -> Self {
        let world = World::new(plan.seed, plan.rules(true));
        Self { plan, world, broker: Broker::new(), store: MemoryStore::new() }
    }

    fn publish(&self) {
        self.broker.publish("orders", self.world.letter()).expect("the broker is open");
    }

    async fn serve(&self, signal: impl Future + Send, run: &Run) -> Result<Report, ServeError> {
        let orders = self.broker.queue("orders").window(self.plan.window).consume();
        let letters = Letters::new(self.broker.publisher().to("orders.dead"), &self.world);
        let signal = async {
            signal.await;
            self.world.draining(run.drain);
        };
        serve(Watched::new(orders, &self.world), stack(&self.plan, &self.world, &self.store, letters))
            .with_graceful_shutdown(signal)
            .on_shutdown(run.drain)
            .drain_timeout(run.drain_timeout)
            .observer(self.world.observer())
            .await
    }

    /// Connections are lost, and messages come, for ever.
    async fn trouble(&self) -> Result<Report, ServeError> {
        let mut later = self.plan.letters.1;
        loop {
            let (pause, lost) = {
                let mut seen = self.world.lock();
                (seen.random.u64(1..100), seen.one_in(3))
            };
            sleep(Duration::from_millis(pause)).await;
            if lost {
                let mut seen = self.world.lock();
                seen.cover("connection lost");
                seen.note(|| "connection lost".into());
                drop(seen);
                self.broker.disconnect_consumers();
            } else if later > 0 {
                later -= 1;
                self.publish();
            }
        }
    }

    async fn run(&mut self, run: &Run, signal: impl Future + Send) {
        if run.anew {
            self.store = MemoryStore::new();
        }
        self.world.begin(run.anew);
        self.world.lock().note(|| format!("{run:?}"));
        let report = timeout(FOR_EVER, async {
            tokio::select! { biased; report = self.serve(signal, run) => report, report = self.trouble() => report }
        });
        let report = report.await;
        // What was abandoned is dropped by the tasks that have it.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        match report {
            Ok(Ok(report)) => self.world.ended(&report),
            Ok(Err(error)) => self.world.lock().broke(format!("promise 4: {error}")),
            Err(_) => self.world.lock().broke("promise 7: the run does not end"),
        }
    }

    async fn play(&mut self) {
        (0..self.plan.letters.0).for_each(|_| self.publish());
        for run in self.plan.runs.clone() {
            self.run(&run, sleep(run.lasts)).await;
        }
        // And in the end all is well.
        self.world.lock().calm = true;
        let last = Run { lasts: FOR_EVER, drain: Drain::Finish, drain_timeout: FOR_EVER, anew: false };
        let drained = self.broker.drained("orders");
        self.run(&last, drained).await;
        self.world.emptied();
        let (copies, _) = self.world.copies();
        if self.broker.len("orders.dead") != copies as usize {
            self.world.lock().broke("promise 3: dead letters are lost");
        }
    }
}

/// Plays one seed; what was covered.
fn play(seed: u64, batches: bool) -> BTreeMap<&'static str, u64> {
    // What the layers draw by chance is the same the next time.
    fastrand::seed(seed);
    let mut stage = Stage::new(Plan::new(seed, batches));
    let traced = seed.is_multiple_of(8).then(record::record);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(stage.play())));
    drop(runtime);
    let mut broken = std::mem::take(&mut stage.world.lock().broken);
    if let Some((heard, _guard)) = traced {
        let open = |span: &&record::Span| !span.closed || span.entered != span.exited;
        broken.extend(heard.spans().iter().find(open).map(|span| format!("a span is left open: {span:?}")));
    }
    if result.is_err() || !broken.is_empty() {
        broken.truncate(12);
        panic!("TOWER_MQ_SEED={seed} breaks a promise:\n{}\n{:#?}", broken.join("\n"), stage.plan);
    }
    std::mem::take(&mut stage.world.lock().covered)
}

fn play_all(batches: bool, expected: &[&str]) {
    quietly();
    if let Some(seed) = env::var("TOWER_MQ_SEED").ok().and_then(|seed| seed.parse().ok()) {
        println!("{:#?}", play(seed, batches));
        return;
    }
    let seeds = if env::var_os("TOWER_MQ_FULL").is_some() { 20_000 } else { 1_200 };
    let mut covered: BTreeMap<_, u64> = BTreeMap::new();
    for seed in 0..seeds {
        for (what, count) in play(seed, batches) {
            *covered.entry(what).or_default() += count;
        }
    }
    println!("{covered:#?}");
    // A test of what never happens would show nothing.
    for what in expected {
        assert!(
            covered.get(what).is_some_and(|count| *count >= 10),
            "{what} hardly ever happens: {covered:#?}"
        );
    }
}

const HAPPENS: [&str; 23] = [
    "abandoned",
    "circuit open",
    "connection lost",
    "copy given up",
    "copy refused",
    "copy unsure",
    "dead lettered",
    "drain to finish",
    "drain to release",
    "dropped",
    "duplicate",
    "error",
    "handled twice",
    "not handled",
    "panicked",
    "refused",
    "released",
    "retried",
    "retried by the broker",
    "stale",
    "time-out",
    "two copies",
    "unreadable",
];

#[test]
fn the_whole_stack_keeps_its_promises() {
    play_all(false, &[&HAPPENS[..], &["parked"]].concat());
}

#[test]
fn the_whole_stack_with_batches_keeps_its_promises() {
    play_all(true, &[&HAPPENS[..], &["batch"]].concat());
}
