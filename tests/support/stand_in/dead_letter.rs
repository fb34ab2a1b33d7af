//! Publishes what is rejected, and acks it when the copy is stored.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower::{Layer, Service, ServiceExt, util::Oneshot};
use tower_mq::{BoxError, IntoOutcome, Message, Outcome, Publication, Receipt};

#[derive(Clone, Debug)]
pub struct DeadLetterLayer<P>(P);

impl<P> DeadLetterLayer<P>
where
    P: Service<Publication, Response = Receipt> + Clone,
    P::Error: Into<BoxError>,
{
    pub const fn new(publisher: P) -> Self {
        Self(publisher)
    }
}

impl<S, P: Clone> Layer<S> for DeadLetterLayer<P> {
    type Service = DeadLetter<S, P>;

    fn layer(&self, inner: S) -> DeadLetter<S, P> {
        DeadLetter { inner, publisher: self.0.clone() }
    }
}

#[derive(Clone, Debug)]
pub struct DeadLetter<S, P> {
    inner: S,
    publisher: P,
}

impl<S, P> Service<Message> for DeadLetter<S, P>
where
    S: Service<Message>,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
    P: Service<Publication, Response = Receipt> + Clone,
    P::Error: Into<BoxError>,
{
    type Response = Outcome;
    type Error = BoxError;
    type Future = DeadLetterFuture<S::Future, P>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, message: Message) -> Self::Future {
        let publisher = self.publisher.clone();
        DeadLetterFuture {
            message: message.clone(),
            publisher,
            stage: Stage::Running(self.inner.call(message)),
        }
    }
}

#[pin_project]
pub struct DeadLetterFuture<F, P: Service<Publication>> {
    message: Message,
    publisher: P,
    #[pin]
    stage: Stage<F, Oneshot<P, Publication>>,
}

#[pin_project(project = StageProjection)]
enum Stage<F, O> {
    Running(#[pin] F),
    Publishing(#[pin] O),
}

impl<F, T, E, P> Future for DeadLetterFuture<F, P>
where
    F: Future<Output = Result<T, E>>,
    T: IntoOutcome,
    E: Into<BoxError>,
    P: Service<Publication, Response = Receipt> + Clone,
    P::Error: Into<BoxError>,
{
    type Output = Result<Outcome, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                StageProjection::Running(inner) => {
                    let outcome = match ready!(inner.poll(cx)).map_err(Into::into).and_then(T::into_outcome) {
                        Ok(outcome) => outcome,
                        Err(error) => this.message.judge(&*error, None),
                    };
                    let Outcome::Reject { reason } = outcome else { return Poll::Ready(Ok(outcome)) };
                    let copy = Publication::new(this.message.clone()).header("reason", reason.into_owned());
                    let publishing = this.publisher.clone().oneshot(copy);
                    this.stage.set(Stage::Publishing(publishing));
                }
                StageProjection::Publishing(publishing) => {
                    let outcome =
                        ready!(publishing.poll(cx)).map_or(Outcome::Release, |Receipt { .. }| Outcome::Ack);
                    return Poll::Ready(Ok(outcome));
                }
            }
        }
    }
}
