//! The service: passes, or waits.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_mq_delivery::{Carry, Circuit, Decided, Generation};
use tower_service::Service;

use crate::{
    circuit::{Circuitry, Pass, report},
    future::{Call, ResponseFuture},
};

/// Pauses a queue while too many of its deliveries fail. Built by [`BreakerLayer`](crate::BreakerLayer).
///
/// Clones share one breaker.
///
/// # Readiness
/// Pending while the circuit is open, and while another delivery probes. An instance that was let through stays ready,
/// and the one delivery that it is ready for goes on, whatever happens meanwhile. When the stack is about to end, nobody
/// waits any more.
///
/// # Cancel safety
/// A response future that is dropped counts for nothing. If it was the probe, another one is let through at once. So it
/// is with an instance that is dropped.
///
/// # Panics
/// A panic of the inner service goes on, and is a failure. Waiting needs a runtime with a clock.
///
/// # Cost
/// While the circuit is closed: a few atomic operations and no allocation. While it is open, a box for each instance
/// that waits.
pub struct Breaker<S> {
    inner: S,
    circuit: Arc<Circuitry>,
    /// Taken in `poll_ready`.
    pass: Option<Pass>,
    waiting: Option<Waiting>,
    /// What the last request came from: who waits must hear of its end.
    generation: Option<Arc<Generation>>,
}

type Waiting = Pin<Box<dyn Future<Output = Pass> + Send + Sync>>;

impl<S> Breaker<S> {
    pub(crate) const fn new(inner: S, circuit: Arc<Circuitry>) -> Self {
        Self { inner, circuit, pass: None, waiting: None, generation: None }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }

    #[cold]
    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Pass> {
        let (circuit, generation) = (&self.circuit, &self.generation);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(circuit.clone().pass(generation.clone())));
        let pass = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(pass)
    }
}

impl<S, R> Service<R> for Breaker<S>
where
    R: Carry,
    S: Service<R>,
    S::Response: Decided,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.pass.is_none() {
            // First its own place, so that nobody's place inside is held while it waits.
            self.pass = Some(match self.circuit.closed() {
                Some(pass) if self.waiting.is_none() => pass,
                _ => ready!(self.poll_pass(cx)),
            });
        }
        self.inner.poll_ready(cx)
    }

    /// # Panics
    /// If `poll_ready` has not said that it is ready.
    #[inline]
    fn call(&mut self, request: R) -> Self::Future {
        let Some(pass) = self.pass.take() else { panic!("a breaker was called before it was ready") };
        let generation = request.messages().first().map(|message| message.generation().clone());
        if generation.as_ref().map(Arc::as_ptr) != self.generation.as_ref().map(Arc::as_ptr) {
            self.generation.clone_from(&generation);
        }
        if let Pass::Probe(_) = pass {
            report(generation.as_ref(), Circuit::HalfOpen);
        }
        let mut call = Call::new(self.circuit.clone(), pass, generation);
        let inner = call.watch(|| self.inner.call(request));
        ResponseFuture::new(inner, call)
    }
}

// A clone has no pass, and waits for nothing.
impl<S: Clone> Clone for Breaker<S> {
    fn clone(&self) -> Self {
        let generation = self.generation.clone();
        Self { generation, ..Self::new(self.inner.clone(), self.circuit.clone()) }
    }
}

impl<S: fmt::Debug> fmt::Debug for Breaker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("inner", &self.inner)
            .field("circuit", &self.circuit)
            .field("pass", &self.pass)
            .finish_non_exhaustive()
    }
}
