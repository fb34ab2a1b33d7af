//! The life of a run: taking, draining, closing.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};
use tower_mq_delivery::{BoxError, Delivery, Drain, Drive, Observer, Panicked, Stopped, Tally};
use tower_service::Service;

use super::{
    intake::SourceIntake,
    report::{Ended, Report, ServeError},
};
use crate::source::{Handle, Source, SourceError, SourceErrorKind};

/// Closing the broker's side should take no longer, whatever the handlers were given.
const CLOSE_AT_MOST: Duration = Duration::from_secs(5);

pub(super) struct Settings<'a> {
    pub(super) signal: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
    pub(super) drain: Drain,
    pub(super) drain_timeout: Duration,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

/// A run whose stack is not named.
pub(super) trait Run<'a>: Future<Output = Result<Report, ServeError>> {
    fn settings(self: Pin<&mut Self>) -> &mut Settings<'a>;
}

pub(super) struct Serving<'a, Src, Svc>
where
    Src: Source,
    Svc: Service<Delivery>,
    Svc::Error: Into<BoxError>,
{
    settings: Settings<'a>,
    drive: Drive<SourceIntake<Src>, Svc, Delivery>,
    handle: Handle,
    tally: Arc<Tally>,
    phase: Phase,
    ended: Ended,
    abandoned: u64,
    failure: Option<Failure>,
}

enum Phase {
    Taking,
    Draining(Pin<Box<Sleep>>),
    Closing(Pin<Box<Sleep>>),
}

enum Failure {
    Service(BoxError),
    Panicked(Panicked),
}

// Nothing in it is pinned: source, signal and timers are in boxes of their own, the service is never pinned.
impl<Src, Svc> Unpin for Serving<'_, Src, Svc>
where
    Src: Source,
    Svc: Service<Delivery>,
    Svc::Error: Into<BoxError>,
{
}

impl<'a, Src, Svc> Serving<'a, Src, Svc>
where
    Src: Source,
    Svc: Service<Delivery>,
    Svc::Error: Into<BoxError>,
{
    pub(super) fn new(source: Src, service: Svc) -> Self {
        let (handle, tally) = (source.handle(), Arc::new(Tally::default()));
        let intake = SourceIntake {
            source: Box::pin(source),
            origin: handle.origin().clone(),
            tally: tally.clone(),
            ended: false,
            errors: 0,
            panics: 0,
            last_panic: None,
        };
        Self {
            settings: Settings {
                signal: None,
                drain: Drain::Finish,
                drain_timeout: Duration::from_secs(30),
                observer: None,
            },
            drive: Drive::new(intake, service),
            handle,
            tally,
            phase: Phase::Taking,
            ended: Ended::Source,
            abandoned: 0,
            failure: None,
        }
    }

    fn drain(&mut self, ended: Ended) {
        self.ended = ended;
        self.settings.signal = None;
        self.phase = Phase::Draining(Box::pin(sleep(self.settings.drain_timeout)));
    }

    fn close(&mut self) {
        let limit = self.settings.drain_timeout.min(CLOSE_AT_MOST);
        self.phase = Phase::Closing(Box::pin(sleep(limit)));
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        // What is in hand is released by being dropped.
        drop(self.drive.stop());
        self.handle.close(Drain::Release);
        if let Phase::Taking = self.phase {
            self.drain(Ended::Service);
        }
    }

    fn poll_signal(&mut self, cx: &mut Context<'_>) {
        if let Some(signal) = &mut self.settings.signal
            && signal.as_mut().poll(cx).is_ready()
        {
            self.handle.close(self.settings.drain);
            self.drain(Ended::Shutdown);
        }
    }

    fn poll_drive(&mut self, cx: &mut Context<'_>) {
        loop {
            match self.drive.poll(cx) {
                Poll::Ready(Ok(())) => return self.close(),
                Poll::Ready(Err(Stopped::Failed(error))) => self.fail(Failure::Service(error.into())),
                // There is no clone of it. Nobody else waits for what it holds, or they share a limit with other runs.
                Poll::Ready(Err(Stopped::Declined)) => {}
                Poll::Ready(Err(Stopped::Broken)) => {
                    let panic = self.drive.intake().last_panic.take();
                    let panic = panic.unwrap_or_else(|| Panicked::new(&(Box::new(()) as _)));
                    self.fail(Failure::Panicked(panic));
                }
                Poll::Pending => break,
            }
        }
        if matches!(self.phase, Phase::Taking) && self.drive.intake().ended {
            self.drain(Ended::Source);
        }
        if let Phase::Draining(limit) = &mut self.phase
            && limit.as_mut().poll(cx).is_ready()
        {
            self.abandoned = self.tally.counts().open();
            tracing::warn!(
                source = self.handle.origin().name(),
                abandoned = self.abandoned,
                "drain time-out"
            );
            self.handle.close(Drain::Release);
            self.drive.abandon();
            self.close();
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<Report, ServeError>> {
        let Phase::Closing(limit) = &mut self.phase else { return Poll::Pending };
        let closed = match self.drive.intake().source.as_mut().poll_closed(cx) {
            Poll::Ready(closed) => closed,
            Poll::Pending if limit.as_mut().poll(cx).is_pending() => return Poll::Pending,
            Poll::Pending => {
                let name = self.handle.origin().name();
                tracing::warn!(source = name, "not closed in time; what was not settled comes again");
                match self.handle.origin().drain() {
                    Some(_) => Ok(()),
                    None => Err(SourceError::new(
                        SourceErrorKind::Cancelled,
                        format!("`{name}` ended by itself, and could not be closed in time to say why"),
                    )),
                }
            }
        };
        let intake = self.drive.intake();
        let report = Report {
            counts: self.tally.counts(),
            abandoned: self.abandoned,
            errors: intake.errors,
            panics: intake.panics,
            ended: self.ended,
        };
        Poll::Ready(match (self.failure.take(), closed) {
            (Some(Failure::Service(error)), _) => Err(ServeError::Service { error, report }),
            (Some(Failure::Panicked(error)), _) => Err(ServeError::Panicked { error, report }),
            (None, Err(error)) => Err(ServeError::Source { error, report }),
            (None, Ok(())) => Ok(report),
        })
    }
}

impl<Src, Svc> Future for Serving<'_, Src, Svc>
where
    Src: Source,
    Svc: Service<Delivery>,
    Svc::Error: Into<BoxError>,
{
    type Output = Result<Report, ServeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(observer) = this.settings.observer.take() {
            this.handle.origin().observe(observer);
        }
        if matches!(this.phase, Phase::Taking) {
            this.poll_signal(cx);
        }
        if !matches!(this.phase, Phase::Closing(_)) {
            this.poll_drive(cx);
        }
        this.poll_close(cx)
    }
}

impl<'a, Src, Svc> Run<'a> for Serving<'a, Src, Svc>
where
    Src: Source,
    Svc: Service<Delivery>,
    Svc::Error: Into<BoxError>,
{
    fn settings(self: Pin<&mut Self>) -> &mut Settings<'a> {
        &mut self.get_mut().settings
    }
}
