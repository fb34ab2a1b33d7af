//! The strict service under a checked layer.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tower_mq_delivery::BoxError;
use tower_service::Service;

use super::{
    plan::{Conduct, Plan},
    request::{Answer, failed},
};

type Response<W> = Pin<Box<dyn Future<Output = Result<<W as Answer>::Answer, BoxError>> + Send>>;
type Acquiring = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// The strict service under a checked layer: it reserves when it is ready, keeps the reservation until its future has
/// ended or is dropped, and tells on those who call it without. A clone is not ready.
pub struct Inner {
    plan: Arc<Plan>,
    permit: Option<OwnedSemaphorePermit>,
    acquiring: Option<Acquiring>,
}

impl Inner {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, permit: None, acquiring: None }
    }
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
        let run = self.plan.called(request.asked());
        if *self.plan.conduct.lock() == Conduct::PanicsInCall {
            panics();
        }
        let plan = self.plan.clone();
        Answering {
            answering: Some(Box::pin(async move {
                let _permit = permit;
                if let Ok(response) = plan.responses.acquire().await {
                    response.forget();
                }
                let conduct = plan.conduct.lock().clone();
                match conduct {
                    Conduct::Answers(outcome) => {
                        run.answered();
                        Ok(request.answer(outcome))
                    }
                    Conduct::Fails => Err(failed()),
                    Conduct::PanicsInPoll | Conduct::PanicsInCall => panics(),
                }
            })),
            plan: self.plan.clone(),
        }
    }
}

fn panics() -> ! {
    panic!("the check lets this call panic")
}

/// The response of the strict service.
pub struct Answering<W: Answer> {
    answering: Option<Response<W>>,
    plan: Arc<Plan>,
}

impl<W: Answer> Future for Answering<W> {
    type Output = Result<W::Answer, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out meanwhile: after a panic it has ended, too.
        let Some(mut answering) = self.answering.take() else {
            self.plan.found("it polled the future of the inner service after its end");
            return Poll::Pending;
        };
        let answer = answering.as_mut().poll(cx);
        if answer.is_pending() {
            self.answering = Some(answering);
        }
        answer
    }
}

impl<W: Answer> fmt::Debug for Answering<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("ended", &self.answering.is_none()).finish_non_exhaustive()
    }
}
