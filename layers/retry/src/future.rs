//! The response of [`Retry`](crate::Retry).

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tokio::time::Instant;
use tower_mq_delivery::{BoxError, Decided, IntoAnswer, Work};
use tower_service::Service;

use crate::{
    pause::{Pause, Rested},
    service::Shared,
    tries::{Answer, Next, Tries, in_vain},
};

/// The response of [`Retry`](crate::Retry): ready when there is no further try. After that it is never ready again.
///
/// # Cancel safety
/// Dropped, it drops the try that runs or ends the rest.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, W>
where
    S: Service<W>,
{
    /// The try that runs.
    #[pin]
    running: Option<S::Future>,
    /// What a further try is given: the members of a batch that are not decided.
    work: W,
    shared: Arc<Shared<S>>,
    /// When the first try began. Only where the time is limited: a look at the clock is not free.
    began: Option<Instant>,
    /// `None`: no try has failed yet, or all is over.
    failed: Option<Box<Failed<S>>>,
}

/// What only those carry that have failed.
struct Failed<S> {
    /// `None`: the rest is over.
    pause: Option<Pause>,
    tries: Tries,
    /// Whether further tries begin here. If not, they are the broker's business.
    here: bool,
    /// For further tries. `None`: there was no rest yet.
    again: Option<S>,
    /// Ready when nobody has to wait for the service any more. `None`: the service was not busy.
    busy: Option<Pause>,
}

// Not tower's own `Retry`: once its policy rests, it can only call again, and our rest may end in a release. And an
// error of readiness goes past its policy, which would cost a batch what is decided about its other members.
impl<S, W> ResponseFuture<S, W>
where
    S: Service<W>,
{
    #[inline]
    pub(crate) fn new(first: S::Future, work: W, shared: Arc<Shared<S>>) -> Self {
        let began = shared.settings.elapsed.map(|_| Instant::now());
        Self { running: Some(first), work, shared, began, failed: None }
    }
}

impl<S, W> Future for ResponseFuture<S, W>
where
    W: Work,
    S: Service<W> + Clone,
    S::Response: IntoAnswer<W>,
    S::Error: Into<BoxError>,
{
    type Output = Result<W::Answer, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            if let Some(running) = this.running.as_mut().as_pin_mut() {
                let answer = ready!(running.poll(cx)).map_err(Into::into).and_then(IntoAnswer::into_answer);
                // What the handler holds is freed before anybody rests, or is told.
                this.running.set(None);
                match &answer {
                    Ok(decided) if this.failed.is_none() && decided.decided().is_some() => {
                        this.shared.settings.deposit();
                        return Poll::Ready(answer);
                    }
                    _ => {
                        if let Some(answer) = self.as_mut().ended(answer) {
                            return Poll::Ready(answer);
                        }
                    }
                }
            }
            if let Err(answer) = ready!(self.as_mut().poll_next(cx)) {
                return Poll::Ready(answer);
            }
        }
    }
}

impl<S, W> ResponseFuture<S, W>
where
    W: Work,
    S: Service<W> + Clone,
    S::Error: Into<BoxError>,
{
    /// A try has ended with this, and it is not all well. `None`: there is a rest, and perhaps another try.
    #[cold]
    fn ended(self: Pin<&mut Self>, answer: Answer<W>) -> Option<Answer<W>> {
        let this = self.project();
        let settings = &this.shared.settings;
        let failed = this.failed.get_or_insert_with(|| {
            let here = settings.tries_here(this.work);
            Box::new(Failed { pause: None, tries: Tries::new(), here, again: None, busy: None })
        });
        match failed.tries.judge(this.work, settings, *this.began, answer, failed.here) {
            Next::Rest(pause) => {
                failed.pause = Some(pause);
                failed.again.get_or_insert_with(|| this.shared.again());
                None
            }
            Next::Answer(answer) => {
                *this.failed = None;
                Some(answer)
            }
        }
    }

    /// Rests, waits for the service, and begins the next try. `Err`: there is none, and this is the answer.
    #[cold]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Answer<W>>> {
        let mut this = self.project();
        let Some(Failed { pause, tries, again: Some(service), busy, .. }) = this.failed.as_deref_mut() else {
            return Poll::Pending;
        };
        let rested = match pause {
            Some(rest) => ready!(rest.as_mut().poll(cx)),
            None => Rested::Fully,
        };
        *pause = None;
        let next = match rested {
            Rested::InVain => Err(tries.in_vain::<W>()),
            Rested::Fully => match service.poll_ready(cx) {
                Poll::Pending => {
                    let over = busy.get_or_insert_with(|| in_vain(this.work));
                    let _in_vain = ready!(over.as_mut().poll(cx));
                    Err(tries.in_vain::<W>())
                }
                Poll::Ready(Err(error)) => Err(tries.widen::<W>(Err(error.into()))),
                Poll::Ready(Ok(())) => tries.next(this.work),
            },
        };
        *busy = None;
        Poll::Ready(match next {
            Ok(work) => {
                this.running.set(Some(service.call(work)));
                Ok(())
            }
            Err(answer) => {
                *this.failed = None;
                Err(answer)
            }
        })
    }
}

impl<S, W> fmt::Debug for ResponseFuture<S, W>
where
    S: Service<W>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match (&self.running, self.failed.as_deref()) {
            (Some(_), _) => "trying",
            (None, Some(Failed { pause: Some(_), .. })) => "resting",
            (None, Some(_)) => "waiting",
            (None, None) => "over",
        };
        f.debug_struct("ResponseFuture")
            .field("stage", &stage)
            .field("tries", &self.failed.as_ref().map(|failed| &failed.tries))
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}
