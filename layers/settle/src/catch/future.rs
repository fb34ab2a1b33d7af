//! The response of [`CatchPanic`](super::CatchPanic).

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use pin_project::pin_project;
use tower_mq_delivery::BoxError;

use super::Blamed;

/// The response of [`CatchPanic`](super::CatchPanic). After its end it is never ready again.
///
/// # Cancel safety
/// Dropping it drops the inner future.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<F> {
    #[pin]
    running: Option<F>,
    state: State,
}

enum State {
    Running(Blamed),
    Panicked(BoxError),
    Over,
}

impl<F> ResponseFuture<F> {
    pub(super) fn running(future: F, blamed: Blamed) -> Self {
        Self { running: Some(future), state: State::Running(blamed) }
    }

    pub(super) fn panicked(error: BoxError) -> Self {
        Self { running: None, state: State::Panicked(error) }
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(running) = this.running.as_mut().as_pin_mut() else {
            return match std::mem::replace(this.state, State::Over) {
                State::Panicked(error) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            };
        };
        let ended = match catch_unwind(AssertUnwindSafe(|| running.poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => Ok(answer),
            Err(panic) => Err(panic),
        };
        // Here, so that a future that panics again when it is dropped is caught, too.
        let dropped = catch_unwind(AssertUnwindSafe(|| this.running.set(None)));
        let State::Running(blamed) = std::mem::replace(this.state, State::Over) else { return Poll::Pending };
        Poll::Ready(match (ended, dropped) {
            (Ok(answer), Ok(())) => answer.map_err(Into::into),
            (Err(panic), _) | (Ok(_), Err(panic)) => Err(blamed.panicked(&panic)),
        })
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("running", &self.running.is_some()).finish_non_exhaustive()
    }
}
