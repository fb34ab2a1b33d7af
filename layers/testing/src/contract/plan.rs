//! What the strict services of one case share: what they are to do, and what was asked of them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_mq_delivery::{Message, Outcome};

use super::{inner::Inner, mark::Mark};

/// What the strict services of one case share.
#[derive(Debug)]
pub(super) struct Plan {
    /// A reservation each.
    pub(super) permits: Arc<Semaphore>,
    capacity: usize,
    /// A response each. Closed: responses need none.
    pub(super) responses: Arc<Semaphore>,
    pub(super) conduct: Mutex<Conduct>,
    pub(super) broken: AtomicBool,
    fault: Mutex<Option<&'static str>>,
    /// Calls, of whatever messages.
    calls: AtomicUsize,
    /// What became of each message of the check that was seen here.
    seen: Mutex<HashMap<u64, Seen>>,
}

/// What the calls come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    Answers(Outcome),
    Fails,
    PanicsInCall,
    PanicsInPoll,
}

#[derive(Debug, Default)]
struct Seen {
    runs: bool,
    answered: bool,
}

impl Plan {
    /// So many reservations at a time, and responses at once.
    pub(super) fn new(capacity: usize) -> Arc<Self> {
        let plan = Self::gated(capacity);
        plan.open();
        plan
    }

    /// The same, and each response waits until it is let through.
    pub(super) fn gated(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(capacity)),
            capacity,
            responses: Arc::new(Semaphore::new(0)),
            conduct: Mutex::new(Conduct::Answers(Outcome::Ack)),
            broken: AtomicBool::new(false),
            fault: Mutex::new(None),
            calls: AtomicUsize::new(0),
            seen: Mutex::default(),
        })
    }

    pub(super) fn service(self: &Arc<Self>) -> Inner {
        Inner::new(self.clone())
    }

    /// Lets all responses through.
    pub(super) fn open(&self) {
        self.responses.close();
    }

    /// Lets one response through.
    pub(super) fn let_one_through(&self) {
        self.responses.add_permits(1);
    }

    /// Takes all reservations away, until they are dropped.
    pub(super) fn occupy(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_many_owned(u32::try_from(self.capacity).ok()?).ok()
    }

    /// Waits until nobody holds a reservation.
    pub(super) async fn idle(&self) {
        let all = u32::try_from(self.capacity).unwrap_or(u32::MAX);
        // It is never closed, and has as many as that.
        let _all = self.permits.acquire_many(all).await;
    }

    /// From now on, what calls come to.
    pub(super) fn conduct(&self, conduct: Conduct) {
        *self.conduct.lock() = conduct;
    }

    /// The service is never ready again.
    pub(super) fn fail_for_good(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        *self.fault.lock()
    }

    pub(super) fn found(&self, fault: &'static str) {
        self.fault.lock().get_or_insert(fault);
    }

    /// How many calls there were.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Acquire)
    }

    /// Whether the message with this number came here.
    pub(super) fn was_called(&self, number: u64) -> bool {
        self.seen.lock().contains_key(&number)
    }

    /// The service is called.
    pub(super) fn called(self: &Arc<Self>, asked: &[Message]) -> Run {
        self.calls.fetch_add(1, Ordering::AcqRel);
        let owner = asked.first().map(|message| message.turn().owner());
        if owner.is_none() {
            self.found("it called the inner service with an empty batch");
        }
        if asked.iter().any(|message| Some(message.turn().owner()) != owner) {
            self.found(
                "a batch holds messages of different owners of turns: one driver would wait for another",
            );
        }
        let numbers: Vec<u64> = asked.iter().filter_map(Mark::of).collect();
        let mut seen = self.seen.lock();
        for number in &numbers {
            let seen = seen.entry(*number).or_default();
            if std::mem::replace(&mut seen.runs, true) {
                self.found("it called the inner service twice at a time with one message");
            }
            if seen.answered {
                self.found("it called the inner service again with a message that was answered well");
            }
        }
        Run { plan: self.clone(), numbers }
    }
}

/// A call of the service that runs.
pub(super) struct Run {
    plan: Arc<Plan>,
    numbers: Vec<u64>,
}

impl Run {
    /// It comes to a good end.
    pub(super) fn answered(&self) {
        let mut seen = self.plan.seen.lock();
        for number in &self.numbers {
            seen.entry(*number).or_default().answered = true;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut seen = self.plan.seen.lock();
        for number in &self.numbers {
            seen.entry(*number).or_default().runs = false;
        }
    }
}
