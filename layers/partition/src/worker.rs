//! A worker as a task.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use tower_mq_delivery::{BoxError, CarryOne, Finished, Intake, SharedError};
use tower_service::Service;

use crate::{
    lane::{Failing, run},
    pool::{Held, Worker},
    service::Template,
    slots::Slots,
};

/// What a worker takes from the pool, and how it starts the next one.
pub(crate) struct WorkerIntake<S, R>
where
    S: Service<R>,
{
    worker: Worker<R, S::Response>,
    template: Arc<Template<S>>,
    slots: Arc<Slots<S::Response>>,
}

/// Starts a worker.
pub(crate) fn start<S, R>(
    runtime: &Handle,
    worker: Worker<R, S::Response>,
    template: &Arc<Template<S>>,
    slots: &Arc<Slots<S::Response>>,
) where
    S: Service<R> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: CarryOne + Send + 'static,
{
    let intake = WorkerIntake { worker, template: template.clone(), slots: slots.clone() };
    drop(runtime.spawn(run(intake, template.clone(), slots.clone())));
}

impl<S, R> Intake<R, Result<S::Response, S::Error>> for WorkerIntake<S, R>
where
    S: Service<R> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: CarryOne + Send + 'static,
{
    type Tag = Held<S::Response>;

    /// A parked delivery keeps its key and frees its worker.
    const PARKS: bool = true;

    #[inline]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(R, Held<S::Response>)>> {
        let polled = self.worker.poll_take(cx);
        self.start_hired();
        polled
    }

    #[inline]
    fn done(&mut self, tag: Held<S::Response>, finished: Finished<Result<S::Response, S::Error>>) {
        tag.runner.finish(finished);
        self.worker.finish(tag.key);
    }

    #[inline]
    fn rest(&mut self) {
        self.worker.rest();
        self.start_hired();
    }
}

impl<S, R> WorkerIntake<S, R>
where
    S: Service<R> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: CarryOne + Send + 'static,
{
    #[inline]
    fn start_hired(&mut self) {
        if let Some(another) = self.worker.hired()
            && let Ok(runtime) = Handle::try_current()
        {
            start(&runtime, another, &self.template, &self.slots);
        }
    }
}

impl<S, R> Failing<R, Result<S::Response, S::Error>> for WorkerIntake<S, R>
where
    S: Service<R> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: CarryOne + Send + 'static,
{
    fn fail(&mut self, held: Option<(R, Held<S::Response>)>, error: &SharedError) {
        if let Some((request, tag)) = held {
            drop(request);
            tag.runner.fail(error.clone());
            self.worker.finish(tag.key);
        }
        self.worker.fail(error);
    }
}
