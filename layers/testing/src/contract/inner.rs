//! The strict service under a checked layer.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tower_mq_delivery::BoxError;
use tower_service::Service;

use super::request::{Answer, failed};

type Response<W> = Pin<Box<dyn Future<Output = Result<<W as Answer>::Answer, BoxError>> + Send>>;
type Acquiring = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// What the strict services of one case share.
#[derive(Debug)]
pub(super) struct Plan {
    /// A reservation each.
    permits: Arc<Semaphore>,
    capacity: usize,
    /// A response each. Closed: responses need none.
    responses: Arc<Semaphore>,
    fails: AtomicBool,
    broken: AtomicBool,
    fault: Mutex<Option<&'static str>>,
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
            fails: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            fault: Mutex::new(None),
        })
    }

    pub(super) fn service(self: &Arc<Self>) -> Inner {
        Inner { plan: self.clone(), permit: None, acquiring: None }
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

    /// From now on, whether responses are errors.
    pub(super) fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::Release);
    }

    /// The service is never ready again.
    pub(super) fn fail_for_good(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        *self.fault.lock()
    }

    fn found(&self, fault: &'static str) {
        self.fault.lock().get_or_insert(fault);
    }
}

/// The strict service under a checked layer: it reserves when it is ready, keeps the reservation until its future has
/// ended or is dropped, and tells on those who call it without. A clone is not ready.
pub struct Inner {
    plan: Arc<Plan>,
    permit: Option<OwnedSemaphorePermit>,
    acquiring: Option<Acquiring>,
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        self.plan.service()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("ready", &self.permit.is_some()).finish_non_exhaustive()
    }
}

impl<W: Answer> Service<W> for Inner {
    type Response = W::Answer;
    type Error = BoxError;
    type Future = Answering<W>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.plan.broken.load(Ordering::Acquire) {
            return Poll::Ready(Err(failed()));
        }
        if self.permit.is_none() {
            let permits = &self.plan.permits;
            let acquiring = self.acquiring.get_or_insert_with(|| Box::pin(permits.clone().acquire_owned()));
            let acquired = ready!(acquiring.as_mut().poll(cx));
            self.acquiring = None;
            self.permit = Some(acquired?);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: W) -> Self::Future {
        let permit = self.permit.take();
        if permit.is_none() {
            self.plan.found("it called the inner service on an instance that was not ready");
        }
        let plan = self.plan.clone();
        Answering {
            answering: Some(Box::pin(async move {
                let _permit = permit;
                if let Ok(response) = plan.responses.acquire().await {
                    response.forget();
                }
                match plan.fails.load(Ordering::Acquire) {
                    true => Err(failed()),
                    false => Ok(request.answer()),
                }
            })),
            plan: self.plan.clone(),
        }
    }
}

/// The response of the strict service.
pub struct Answering<W: Answer> {
    answering: Option<Response<W>>,
    plan: Arc<Plan>,
}

impl<W: Answer> Future for Answering<W> {
    type Output = Result<W::Answer, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answering) = &mut self.answering else {
            self.plan.found("it polled the future of the inner service after its end");
            return Poll::Pending;
        };
        let answer = ready!(answering.as_mut().poll(cx));
        self.answering = None;
        Poll::Ready(answer)
    }
}

impl<W: Answer> fmt::Debug for Answering<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("ended", &self.answering.is_none()).finish_non_exhaustive()
    }
}
