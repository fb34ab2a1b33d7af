//! The promises that a whole stack keeps, as a small model that watches: what was published, handed out, handled, copied
//! and settled. Whatever breaks a promise is noted, as what happened inside a handler must not panic there.

#![allow(dead_code, unreachable_pub)]

mod act;
mod plan;
mod publishing;
mod stack;
mod watched;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tower_mq::{Bytes, Drain, Event, Generation, Message, Origin, Outcome, Report, Settlement};

pub use act::quietly;
pub use plan::{Plan, Run};
pub use publishing::Letters;
pub use stack::stack;
pub use watched::Watched;

/// The header that tells which message it is.
pub const NUMBER: &str = "n";

/// A payload that no handler is given.
const UNREADABLE: &[u8] = b"\xff";

/// All that happened. Clones are the same.
#[derive(Clone)]
pub struct World(Arc<Mutex<Seen>>);

/// What is watched.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Messages of a key are handled one after the other, in order.
    pub ordered: bool,
    /// The most handlers at a time.
    pub calls: usize,
    /// The most deliveries that are taken and not settled.
    pub window: usize,
    /// Time stands still while something happens, and an ack is stored when it is made. Else connections are lost, and
    /// ends begin, at any moment, and acks are lost with their connections.
    pub exact: bool,
}

pub struct Seen {
    pub rules: Rules,
    pub random: Rng,
    began: Instant,
    /// Tells all that happens, for those who look for a fault.
    pub loud: bool,
    /// Handlers succeed, and dead letters are stored.
    pub calm: bool,
    pub letters: Vec<Letter>,
    pub deliveries: Vec<Taken>,
    /// Where the deliveries of this run begin.
    run: usize,
    runs: usize,
    /// The last delivery of this message in this run and generation.
    places: HashMap<(usize, usize, u64), usize>,
    /// In which delivery a message with this id was handled.
    known: HashMap<String, usize>,
    /// The last message of each key that was handled for the first time.
    firsts: HashMap<String, usize>,
    /// The members of the last call of each key, in this run.
    last_calls: HashMap<String, Vec<usize>>,
    running: Vec<Vec<usize>>,
    drain: Option<Drain>,
    panics: u64,
    events: BTreeMap<&'static str, u64>,
    pub covered: BTreeMap<&'static str, u64>,
    pub broken: Vec<String>,
}

/// A message that was published.
#[derive(Debug)]
pub struct Letter {
    pub id: Option<String>,
    pub key: Option<String>,
    pub payload: Bytes,
    handled: bool,
    done: bool,
    last: Option<usize>,
    copies: u32,
}

/// A delivery that was handed out.
pub struct Taken {
    n: usize,
    generation: Arc<Generation>,
    end: Option<End>,
    succeeded: bool,
    /// Copies that are stored, and tries of which nobody knows.
    pub copies: u32,
    pub unsure: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Settled(Outcome, Settlement),
    Dropped(Settlement),
}

impl End {
    fn settlement(&self) -> Settlement {
        match self {
            Self::Settled(_, settlement) | Self::Dropped(settlement) => *settlement,
        }
    }

    /// It reached nobody.
    fn is_stale(&self) -> bool {
        matches!(self.settlement(), Settlement::Stale | Settlement::LeaseLost)
    }
}

impl World {
    pub fn new(seed: u64, rules: Rules) -> Self {
        Self(Arc::new(Mutex::new(Seen {
            rules,
            random: Rng::with_seed(seed),
            began: Instant::now(),
            loud: std::env::var_os("TOWER_MQ_SEED").is_some(),
            calm: false,
            letters: Vec::new(),
            deliveries: Vec::new(),
            run: 0,
            runs: 0,
            places: HashMap::new(),
            known: HashMap::new(),
            firsts: HashMap::new(),
            last_calls: HashMap::new(),
            running: Vec::new(),
            drain: None,
            panics: 0,
            events: BTreeMap::new(),
            covered: BTreeMap::new(),
            broken: Vec::new(),
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock()
    }

    /// The next message to be published.
    pub fn letter(&self) -> Message {
        self.lock().letter()
    }

    /// A run begins; `anew`: in a process that remembers nothing.
    pub fn begin(&self, anew: bool) {
        let mut seen = self.lock();
        seen.run = seen.deliveries.len();
        seen.runs += 1;
        seen.drain = None;
        seen.last_calls.clear();
        seen.events.clear();
        seen.panics = 0;
        if anew {
            seen.known.clear();
        }
    }

    /// The end of a run begins.
    pub fn draining(&self, drain: Drain) {
        let mut seen = self.lock();
        seen.note(|| format!("drain {drain:?}"));
        seen.cover(match drain {
            Drain::Finish => "drain to finish",
            _ => "drain to release",
        });
        seen.drain = Some(drain);
    }

    /// Panics, as planned.
    pub fn panics(&self) -> ! {
        self.lock().panics += 1;
        panic!("planned")
    }

    /// For `Serve::observer`.
    pub fn observer(&self) -> impl Fn(&Origin, &Event<'_>) + Send + Sync + 'static {
        let world = self.clone();
        move |_: &Origin, event: &Event<'_>| world.lock().event(event)
    }

    /// A run has ended: its report adds up, and each delivery was settled once.
    pub fn ended(&self, report: &Report) {
        self.lock().ended(report);
    }

    /// All messages are acked.
    pub fn is_done(&self) -> bool {
        self.lock().letters.iter().all(|letter| letter.done)
    }

    /// How many copies are stored, and of how many nobody knows.
    pub fn copies(&self) -> (u32, u32) {
        let seen = self.lock();
        let copies = seen.letters.iter().map(|letter| letter.copies).sum();
        (copies, seen.deliveries.iter().map(|delivery| delivery.unsure).sum())
    }

    /// The queue is empty.
    pub fn emptied(&self) {
        self.lock().emptied();
    }
}

impl Seen {
    pub fn broke(&mut self, promise: impl Into<String>) {
        let promise = promise.into();
        self.note(|| format!("BROKEN {promise}"));
        self.broken.push(promise);
    }

    pub fn note(&self, what: impl FnOnce() -> String) {
        if self.loud {
            println!("{:?} {}", self.began.elapsed(), what());
        }
    }

    pub fn cover(&mut self, what: &'static str) {
        *self.covered.entry(what).or_default() += 1;
    }

    /// What happens with this chance, unless all is calm.
    pub fn one_in(&mut self, chances: u32) -> bool {
        !self.calm && self.random.u32(0..chances) == 0
    }

    fn letter(&mut self) -> Message {
        let n = self.letters.len();
        let key = (self.random.u8(0..8) > 0).then(|| format!("key-{}", self.random.u8(0..4)));
        let twin = (n > 0 && self.random.u8(0..8) == 0).then(|| self.random.usize(0..n));
        let id = match twin.and_then(|twin| self.letters[twin].id.clone()) {
            Some(id) => Some(id),
            None => (self.random.u8(0..4) > 0).then(|| format!("id-{n}")),
        };
        let payload: Bytes = match self.random.u8(0..12) {
            0 => Bytes::from_static(UNREADABLE),
            _ => format!("order {n}").into(),
        };
        let mut message = Message::builder(payload.clone()).maybe_key(key.clone()).header(NUMBER, n as i64);
        if let Some(id) = id.clone() {
            message = message.id(id);
        }
        self.note(|| format!("published {n}: {key:?} {id:?} {payload:?}"));
        self.letters.push(Letter { id, key, payload, handled: false, done: false, last: None, copies: 0 });
        message.build()
    }

    fn event(&mut self, event: &Event<'_>) {
        let name = match event {
            Event::Taken => "taken",
            Event::Settled { .. } | Event::Dropped => "settled",
            Event::Panicked { .. } => "panicked",
            Event::Retried { .. } => "retried",
            Event::Parked { .. } => "parked",
            Event::Resumed { .. } => "resumed",
            Event::Duplicate { .. } => "duplicate",
            Event::NotHandled { .. } => "not handled",
            Event::DeadLettered { .. } => "dead lettered",
            Event::NotDeadLettered { given_up: true, .. } => "copy given up",
            Event::Circuit(tower_mq::Circuit::Open) => "circuit open",
            _ => return,
        };
        *self.events.entry(name).or_default() += 1;
        self.cover(name);
        self.note(|| format!("event: {name}"));
    }

    fn heard(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }

    fn ended(&mut self, report: &Report) {
        let (counts, taken) = (report.counts, &self.deliveries[self.run..]);
        let count = |is: &dyn Fn(&End) -> bool| {
            taken.iter().filter(|d| d.end.as_ref().is_some_and(is)).count() as u64
        };
        let live = |is: fn(&Outcome) -> bool| {
            count(&|end| matches!(end, End::Settled(outcome, _) if is(outcome)) && !end.is_stale())
        };
        // Nobody waits for what was abandoned after its generation had ended: it is dropped in its lane, soon.
        let open = counts.open().min(report.abandoned);
        // A decision that reaches nobody, as its source has ended, is as good as stale.
        let failed = if self.rules.exact { 0 } else { counts.failed };
        let expected = [
            (counts.taken, taken.len() as u64, "taken"),
            (counts.open(), open, "open"),
            (counts.acked, live(|o| *o == Outcome::Ack), "acked"),
            (counts.released, live(|o| *o == Outcome::Release), "released"),
            (counts.retried, live(|o| matches!(o, Outcome::Retry { .. })), "retried"),
            (counts.rejected, 0, "rejected"),
            (counts.dropped, count(&|end| matches!(end, End::Dropped(_)) && !end.is_stale()), "dropped"),
            (counts.stale + failed + open, count(&|end| end.is_stale()), "stale"),
            (counts.failed, failed, "failed"),
            (report.errors, failed, "errors"),
            (report.panics, 0, "panics"),
            (self.heard("taken"), taken.len() as u64, "events of taken ones"),
            (self.heard("settled"), taken.len() as u64, "events of settled ones"),
            (self.heard("panicked"), self.panics, "events of panics"),
            (self.heard("resumed"), self.heard("parked"), "events of resumed ones"),
        ];
        let wrong = expected.into_iter().filter(|(is, should, _)| is != should);
        let wrong: Vec<_> = wrong
            .map(|(is, should, what)| format!("promise 7: {is} {what}, expected {should}: {report}"))
            .collect();
        let abandoned = report.abandoned > counts.dropped + counts.stale + open;
        self.broken.extend(wrong);
        if abandoned {
            self.broke(format!("promise 7: more abandoned than dropped: {report}"));
        }
        if !self.running.is_empty() {
            let running = &self.running;
            self.broken.push(format!("promise 7: handlers still run after the end: {running:?}"));
        }
        let covered = [
            (report.abandoned, "abandoned"),
            (counts.stale, "stale"),
            (counts.dropped, "dropped"),
            (counts.released, "released"),
            (counts.retried, "retried by the broker"),
        ];
        for (count, what) in covered {
            *self.covered.entry(what).or_default() += count;
        }
    }

    fn emptied(&mut self) {
        for n in 0..self.letters.len() {
            if !self.letters[n].done {
                self.broke(format!("promise 3: message {n} is lost: {:?}", self.letters[n]));
            }
        }
    }
}
