//! Brings the response of any service to the one currency of a stack.

use std::{
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower::{Layer, Service};
use tower_mq::{BoxError, IntoAnswer, Work};

#[derive(Clone, Debug)]
pub struct AnswerLayer;

impl<S> Layer<S> for AnswerLayer {
    type Service = Answer<S>;

    fn layer(&self, inner: S) -> Answer<S> {
        Answer(inner)
    }
}

#[derive(Clone, Debug)]
pub struct Answer<S>(pub S);

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

#[pin_project]
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
