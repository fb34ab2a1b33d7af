//! One case under way.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    future::poll_fn,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::runtime::Handle;
use tower_layer::Layer;
use tower_mq_delivery::{
    BoxError, Capabilities, Generation, Message, Origin, Outcome, Outcomes, Settled, Turn,
};
use tower_service::Service;

use super::{
    Fault,
    driver::{Driven, Driver},
    inner::Inner,
    mark::Mark,
    plan::Plan,
    request::Request,
    strict::{LIMIT, Strict, moment},
};
use crate::Probe;

/// What can be checked.
pub(super) trait Subject<R>: Service<R, Response: 'static, Error: Into<BoxError>> + Clone {}

impl<R, S: Service<R, Response: 'static, Error: Into<BoxError>> + Clone> Subject<R> for S {}

/// What a call is made of, if it is not one like all others.
pub(super) struct Odd {
    pub(super) key: Option<Vec<u8>>,
    /// Apart from those of other cases: a layer may remember what it has seen in them.
    pub(super) id: Option<String>,
    pub(super) attempt: Option<u32>,
    /// Of which driver; `None`: of none.
    pub(super) driver: Option<usize>,
}

/// How many cases there were.
static CASES: AtomicUsize = AtomicUsize::new(0);

/// A call that is under way.
pub(super) type Sent<F> = Strict<Driven<F>>;

/// A case under way: the strict service, the layer around it, and all that was asked of it.
pub(super) struct Case<R, S> {
    name: &'static str,
    pub(super) plan: Arc<Plan>,
    pub(super) service: S,
    pub(super) generation: Arc<Generation>,
    drivers: [Driver; 2],
    /// That have to be settled.
    probes: RefCell<Vec<Probe>>,
    /// Whether somebody holds the message.
    held: RefCell<Vec<Weak<()>>>,
    made: Cell<u64>,
    /// Of this case, in this process.
    serial: usize,
    /// Of the runtime, before the layer was asked.
    tasks: usize,
    _request: PhantomData<fn(R)>,
}

impl<R: Request, S: Subject<R>> Case<R, S> {
    pub(super) fn new<L>(name: &'static str, layer: &L, plan: Arc<Plan>) -> Result<Self, Fault>
    where
        L: Layer<Inner, Service = S>,
    {
        let tasks = tasks();
        let service = layer.layer(plan.service());
        let origin = Origin::new("checked", "test", usize::MAX, Capabilities::unknown());
        let this = Self {
            name,
            plan,
            service,
            generation: Generation::first(Arc::new(origin)),
            drivers: [Driver::new(), Driver::new()],
            probes: RefCell::default(),
            held: RefCell::default(),
            made: Cell::new(0),
            serial: CASES.fetch_add(1, Ordering::Relaxed),
            tasks,
            _request: PhantomData,
        };
        match self::tasks() > tasks {
            true => this.fault("`layer` started a task: it may run many times, and start nothing"),
            false => Ok(this),
        }
    }

    pub(super) fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(Fault { case: self.name, what: self.plan.fault().unwrap_or(what) })
    }

    /// The number of the message that is made next.
    pub(super) fn made(&self) -> u64 {
        self.made.get()
    }

    /// Whether this is about deliveries, and the last one was acked.
    pub(super) fn is_settled(&self) -> bool {
        self.probes.borrow().last().and_then(Probe::outcome) == Some(Outcome::Ack)
    }

    /// Calls the service with one more message, whose key and id nobody else has.
    pub(super) fn send(&self, service: &mut S) -> Sent<S::Future> {
        let number = self.made.get();
        let (key, id) = (number.to_be_bytes().to_vec(), format!("message-{number}"));
        self.send_odd(service, Odd { key: Some(key), id: Some(id), attempt: Some(1), driver: Some(0) })
    }

    /// Calls the service with such a message.
    pub(super) fn send_odd(&self, service: &mut S, odd: Odd) -> Sent<S::Future> {
        let number = self.made.replace(self.made.get() + 1);
        let (mark, held) = Mark::new(number, odd.id.map(|id| format!("{id}-of-{}", self.serial)));
        let mut message = Message::native_builder("".into(), self.generation.clone(), mark)
            .maybe_key(odd.key)
            .maybe_attempt(odd.attempt)
            .build();
        let driver = &self.drivers[odd.driver.unwrap_or(0)];
        let (turn, turn_number) = match odd.driver {
            Some(_) => driver.turn(),
            None => (Turn::detached(), u64::MAX >> 1),
        };
        let _none = message.set_turn(turn);
        let (request, probe) = R::make(message);
        self.probes.borrow_mut().extend(probe);
        self.held.borrow_mut().push(held);
        // A driver catches it, too.
        let future = catch_unwind(AssertUnwindSafe(|| service.call(request))).ok();
        Strict::new(Driven::new(future, driver, turn_number, number))
    }

    /// Waits until this instance is ready.
    pub(super) async fn ready(&self, service: &mut S) -> Result<(), Fault> {
        match Strict::new(poll_fn(|cx| service.poll_ready(cx))).outcome().await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => self.fault("`poll_ready` failed, and the inner service had not failed"),
            None => {
                self.fault("`poll_ready` stayed pending: a reservation has leaked, or a wake-up was lost")
            }
        }
    }

    /// Waits for the response.
    pub(super) async fn response(
        &self,
        sent: Sent<S::Future>,
    ) -> Result<Result<S::Response, S::Error>, Fault> {
        match sent.outcome().await {
            Some(Ok(response)) => Ok(response),
            Some(Err(_)) => self.fault("a call panicked, and the inner service had not"),
            None => self.fault("a response never came: a wake-up was lost, or the call was"),
        }
    }

    /// Waits for a good response.
    pub(super) async fn good_response(&self, sent: Sent<S::Future>) -> Result<(), Fault> {
        let number = sent.get_ref().number;
        let Ok(response) = self.response(sent).await? else {
            return self.fault("a response was an error, and the inner service had answered well");
        };
        if !self.plan.was_called(number) && self.plan.calls() == 0 {
            return self.fault("it answered by itself: the inner service was never called");
        }
        let settled = self.probes.borrow().last().and_then(Probe::outcome);
        if decided(&response).or(settled).is_some_and(|decided| decided != Outcome::Ack) {
            return self.fault("it changed the decision: the inner service had acked");
        }
        Ok(())
    }

    /// Waits for several good responses: see [`together`](Self::together).
    pub(super) async fn good_responses(
        &self,
        open: impl IntoIterator<Item = Sent<S::Future>>,
    ) -> Result<(), Fault> {
        self.together(open.into_iter().map(|sent| self.good_response(sent))).await
    }

    /// Goes on with all of them, as drivers do: one may run behind another.
    pub(super) async fn together<F: Future<Output = Result<(), Fault>>>(
        &self,
        all: impl IntoIterator<Item = F>,
    ) -> Result<(), Fault> {
        let mut open: Vec<_> = all.into_iter().map(Strict::new).collect();
        poll_fn(|cx| {
            let mut failed = Ok(());
            open.retain_mut(|one| match Pin::new(one).poll(cx) {
                Poll::Ready(ended) => {
                    failed = failed.clone().and(ended);
                    false
                }
                Poll::Pending => true,
            });
            match open.is_empty() || failed.is_err() {
                true => Poll::Ready(failed),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Waits until nobody holds a reservation of the inner service.
    pub(super) async fn idle(&self) -> Result<(), Fault> {
        match Strict::new(self.plan.idle()).outcome().await {
            Some(()) => Ok(()),
            None => {
                self.fault("it keeps a reservation of the inner service that nobody needs: others may starve")
            }
        }
    }

    /// One call, from readiness to a good response.
    pub(super) async fn call(&self, service: &mut S) -> Result<(), Fault> {
        self.ready(service).await?;
        let sent = self.send(service);
        self.good_response(sent).await
    }

    /// The same, with such a message.
    pub(super) async fn call_odd(&self, service: &mut S, odd: Odd) -> Result<(), Fault> {
        self.ready(service).await?;
        let sent = self.send_odd(service, odd);
        self.good_response(sent).await
    }

    /// A call that the layer may answer by itself. It must then say so, or give back what it has reserved; `service` is
    /// what a driver goes on with.
    pub(super) async fn call_that_may_be_declined(&self, service: &mut S, odd: Odd) -> Result<(), Fault> {
        self.ready(service).await?;
        let turns = &self.drivers[0].turns;
        let _before = turns.take_declined();
        let mut sent = self.send_odd(service, odd);
        if sent.end().await.is_none() {
            return self.fault("a response never came: a wake-up was lost, or the call was");
        }
        let Driven { number, .. } = *sent.get_ref();
        if self.plan.was_called(number) || sent.get_ref().is_passed() {
            return Ok(());
        }
        drop(sent);
        let declined = turns.take_declined();
        if !declined && Strict::new(self.plan.idle()).soon().await.is_none() {
            return self.fault(
                "it did not call the inner service, and keeps the reservation without a word: `Turn::decline`",
            );
        }
        *service = self.service.clone();
        self.idle().await
    }

    /// Waits until nobody holds a message that was answered, or given up.
    pub(super) async fn forgotten(&self) -> Result<(), Fault> {
        let held = || self.held.borrow().iter().any(|held| held.strong_count() > 0);
        match until(|| !held()).await {
            true => Ok(()),
            false if self.probes.borrow().iter().any(|probe| probe.times() == 0) => {
                self.fault("a delivery was neither settled nor given back")
            }
            false => self.fault("it keeps a message whose call has ended: memory grows with every one"),
        }
    }

    /// Drops the layer, and looks for what it left behind.
    pub(super) async fn end(self) -> Result<(), Fault> {
        let Self { name, plan, service, probes, held, tasks, .. } = self;
        drop(service);
        plan.open();
        let idle = Strict::new(plan.idle()).outcome().await.is_some();
        moment().await;
        let fault = |what| Err(Fault { case: name, what });
        if let Some(what) = plan.fault() {
            return fault(what);
        }
        if !idle {
            return fault("a reservation of the inner service was never given back");
        }
        for probe in probes.into_inner() {
            match probe.times() {
                1 => {}
                0 => return fault("a delivery was neither settled nor given back"),
                _ => return fault("a delivery was settled more than once"),
            }
        }
        if !until(|| held.borrow().iter().all(|held| held.strong_count() == 0)).await {
            return fault("it keeps a message, and all its instances are gone");
        }
        if !until(|| self::tasks() <= tasks).await {
            return fault("a task of it runs on, and all its instances are gone");
        }
        Ok(())
    }
}

/// What was decided, where a response tells it.
pub(super) fn decided<T: 'static>(response: &T) -> Option<Outcome> {
    let response = response as &dyn Any;
    let of_settled = || response.downcast_ref::<Settled>().map(|settled| &settled.outcome);
    let of_outcomes = || match response.downcast_ref::<Outcomes>() {
        Some(Outcomes::All(outcome)) => Some(outcome),
        _ => None,
    };
    response.downcast_ref::<Outcome>().or_else(of_settled).or_else(of_outcomes).cloned()
}

/// How many tasks live on this runtime.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Waits for it, looking less and less often. `false`: it is never so.
async fn until(so: impl Fn() -> bool) -> bool {
    let mut pause = Duration::from_millis(1);
    while !so() {
        if pause > LIMIT {
            return false;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    true
}
