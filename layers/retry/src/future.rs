//! The response of [`Retry`](crate::Retry).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_mq_delivery::{BoxError, IntoAnswer, Work};
use tower_service::Service;

use crate::{
    pause::{Pause, Rested},
    tries::{Next, Tries},
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
    #[pin]
    stage: Stage<S::Future>,
    /// Not ready. `None`: further tries are the broker's business.
    again: Option<S>,
    tries: Tries<W>,
}

// Not tower's own `Retry`: once its policy rests, it can only call again, and our rest may end in a release. And an
// error of readiness goes past its policy, which would cost a batch what is decided about its other members.
#[pin_project(project = StageProjection)]
enum Stage<F> {
    Trying(#[pin] F),
    Resting(Pause),
    /// Until the service is ready for another try, or there is none any more. `None`: it was not asked yet.
    Waiting(Option<Pause>),
    Over,
}

impl<S, W> ResponseFuture<S, W>
where
    S: Service<W>,
{
    #[inline]
    pub(crate) fn new(first: S::Future, again: Option<S>, tries: Tries<W>) -> Self {
        Self { stage: Stage::Trying(first), again, tries }
    }
}

impl<S, W> Future for ResponseFuture<S, W>
where
    W: Work,
    S: Service<W>,
    S::Response: IntoAnswer<W>,
    S::Error: Into<BoxError>,
{
    type Output = Result<W::Answer, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let answer = match this.stage.as_mut().project() {
                StageProjection::Trying(try_) => {
                    let answer = ready!(try_.poll(cx)).map_err(Into::into).and_then(IntoAnswer::into_answer);
                    // What the handler holds is freed before anybody rests, or is told.
                    this.stage.set(Stage::Over);
                    match this.tries.judge(answer, this.again.is_some()) {
                        Next::Answer(answer) => return Poll::Ready(answer),
                        Next::Rest(pause) => this.stage.set(Stage::Resting(pause)),
                    }
                    continue;
                }
                StageProjection::Resting(pause) => match ready!(pause.as_mut().poll(cx)) {
                    Rested::Fully => {
                        this.stage.set(Stage::Waiting(None));
                        continue;
                    }
                    Rested::InVain => this.tries.in_vain(),
                },
                StageProjection::Waiting(vain) => {
                    let Some(service) = this.again else { return Poll::Pending };
                    match service.poll_ready(cx) {
                        Poll::Pending => {
                            let vain = vain.get_or_insert_with(|| this.tries.wait());
                            ready!(vain.as_mut().poll(cx));
                            this.tries.in_vain()
                        }
                        Poll::Ready(Err(error)) => this.tries.widen(Err(error.into())),
                        Poll::Ready(Ok(())) => match this.tries.next() {
                            Err(answer) => answer,
                            Ok(work) => {
                                this.stage.set(Stage::Trying(service.call(work)));
                                continue;
                            }
                        },
                    }
                }
                StageProjection::Over => return Poll::Pending,
            };
            this.stage.set(Stage::Over);
            return Poll::Ready(answer);
        }
    }
}

impl<S, W> fmt::Debug for ResponseFuture<S, W>
where
    S: Service<W>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Trying(_) => "trying",
            Stage::Resting(_) => "resting",
            Stage::Waiting(_) => "waiting",
            Stage::Over => "over",
        };
        f.debug_struct("ResponseFuture")
            .field("stage", &stage)
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}
