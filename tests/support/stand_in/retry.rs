//! Retries in place, on tower's own retry.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;
use tower::{Layer, Service, retry};
use tower_mq::{Aside, BoxError, Failure, IntoAnswer, Outcome, Work};

use super::answer::Answer;

#[derive(Clone, Debug)]
pub struct Backoff {
    from: Duration,
    to: Duration,
}

impl Backoff {
    pub const fn exponential(from: Duration, to: Duration) -> Self {
        Self { from, to }
    }
}

#[derive(Clone, Debug)]
pub struct RetryLayer(Tries);

impl RetryLayer {
    pub const fn in_place(backoff: Backoff) -> Self {
        Self(Tries { backoff, left: 2, aside: Aside::new() })
    }

    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.0.left = attempts.saturating_sub(1);
        self
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry(retry::Retry::new(self.0.clone(), Answer(inner)))
    }
}

#[derive(Clone, Debug)]
pub struct Retry<S>(retry::Retry<Tries, Answer<S>>);

impl<S, W> Service<W> for Retry<S>
where
    W: Work,
    S: Service<W> + Clone,
    S::Response: IntoAnswer<W>,
    S::Error: Into<BoxError>,
{
    type Response = W::Answer;
    type Error = BoxError;
    type Future = retry::future::ResponseFuture<Tries, Answer<S>, W>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, work: W) -> Self::Future {
        self.0.call(work)
    }
}

#[derive(Debug)]
pub struct Tries {
    backoff: Backoff,
    left: u32,
    aside: Aside,
}

impl Clone for Tries {
    fn clone(&self) -> Self {
        Self { backoff: self.backoff.clone(), left: self.left, aside: Aside::new() }
    }
}

impl<W: Work> retry::Policy<W, W::Answer, BoxError> for Tries {
    type Future = Sleep;

    fn retry(&mut self, work: &mut W, answer: &mut Result<W::Answer, BoxError>) -> Option<Sleep> {
        let last = std::mem::replace(answer, Ok(Outcome::Release.into()));
        let left = self.left > 0;
        let again = work.narrow(last, &mut self.aside, &mut |_, error| left && Failure::find(error).is_none());
        if let Some(last) = again {
            *answer = W::widen(last, &mut self.aside);
            return None;
        }
        self.left -= 1;
        work.again();
        let rest = self.backoff.from;
        self.backoff.from = (rest * 2).min(self.backoff.to);
        Some(tokio::time::sleep(rest))
    }

    fn clone_request(&mut self, work: &W) -> Option<W> {
        Some(work.clone())
    }
}
