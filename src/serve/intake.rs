//! The source as the driver's loop sees it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower_mq_delivery::{BoxError, Delivery, Event, Finished, Intake, Origin, Panicked, Tally};

use crate::source::Source;

pub(super) struct SourceIntake<Src> {
    pub(super) source: Pin<Box<Src>>,
    pub(super) origin: Arc<Origin>,
    pub(super) tally: Arc<Tally>,
    pub(super) ended: bool,
    pub(super) errors: u64,
    pub(super) panics: u64,
    pub(super) last_panic: Option<Panicked>,
}

impl<Src: Source, T, E: Into<BoxError>> Intake<Delivery, Result<T, E>> for SourceIntake<Src> {
    type Tag = ();

    #[inline(always)]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Delivery, ())>> {
        match self.source.as_mut().poll_next(cx) {
            Poll::Ready(Some(mut delivery)) => {
                self.origin.report(&Event::Taken);
                delivery.count(&self.tally);
                Poll::Ready(Some((delivery, ())))
            }
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    #[inline(always)]
    fn done(&mut self, (): (), finished: Finished<Result<T, E>>) {
        match finished {
            Finished::Answered(Ok(_)) | Finished::Cancelled => {}
            Finished::Answered(Err(error)) => self.failed(&error.into()),
            Finished::Panicked(panic) => self.panicked(Panicked::new(&panic)),
        }
    }
}

impl<Src> SourceIntake<Src> {
    #[cold]
    fn failed(&mut self, error: &BoxError) {
        self.errors += 1;
        tracing::error!(source = self.origin.name(), error = %error, "a delivery ended with an error outside of settle");
    }

    #[cold]
    fn panicked(&mut self, panic: Panicked) {
        self.panics += 1;
        self.origin.report(&Event::Panicked { message: None });
        tracing::error!(source = self.origin.name(), error = %panic, "the service panicked; its delivery is released");
        self.last_panic = Some(panic);
    }
}
