//! Any service, in the one currency of a stack.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{BoxError, IntoAnswer, Work};

/// Brings what a service answers to the one currency of a stack: [`Outcome`](crate::Outcome) for a
/// [`Message`](crate::Message), [`Outcomes`](crate::Outcomes) for a batch, [`BoxError`] for errors.
///
/// The layers of a stack do so by themselves. It is needed where types must be equal: around a service of your own,
/// under an `option_layer`. `handler(f)` answers in this currency already.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct AnswerLayer;

impl AnswerLayer {
    /// There is nothing to set.
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for AnswerLayer {
    type Service = Answer<S>;

    fn layer(&self, inner: S) -> Answer<S> {
        Answer::new(inner)
    }
}

/// Answers in the one currency of a stack. Built by [`AnswerLayer`].
///
/// # Cost
/// No allocation, unless an error is not boxed yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<S>(S);

impl<S> Answer<S> {
    /// Around `inner`.
    pub const fn new(inner: S) -> Self {
        Self(inner)
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.0
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.0
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.0
    }
}

impl<S, W> Service<W> for Answer<S>
where
    W: Work,
    S: Service<W>,
    S::Response: IntoAnswer<W>,
    S::Error: Into<BoxError>,
{
    type Response = W::Answer;
    type Error = BoxError;
    type Future = AnswerFuture<S::Future, W>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, work: W) -> Self::Future {
        AnswerFuture { inner: self.0.call(work), work: PhantomData }
    }
}

/// The response of [`Answer`].
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct AnswerFuture<F, W> {
    #[pin]
    inner: F,
    work: PhantomData<fn() -> W>,
}

impl<F, T, E, W> Future for AnswerFuture<F, W>
where
    F: Future<Output = Result<T, E>>,
    T: IntoAnswer<W>,
    E: Into<BoxError>,
    W: Work,
{
    type Output = Result<W::Answer, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.project().inner.poll(cx));
        Poll::Ready(answer.map_err(Into::into).and_then(IntoAnswer::into_answer))
    }
}

impl<F, W> fmt::Debug for AnswerFuture<F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerFuture")
    }
}
