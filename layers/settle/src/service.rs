//! The service: splits the delivery, and settles it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use tower_mq_delivery::{BoxError, Delivery, Drain, Event, IntoOutcome, Message, Outcome, Settled};
use tower_service::Service;

use crate::{SettleLayer, duty::Duty, future::ResponseFuture};

/// Settles each delivery with what the inner service makes of its message. Built by [`SettleLayer`].
///
/// # Cancel safety
/// A response future that is dropped, at any stage, releases its delivery. The inner future is dropped first, so the
/// message does not come again while somebody works on it.
///
/// # Panics
/// A panic of the inner service, in `call` or while it runs, is an error for the policy
/// ([`Panicked`](tower_mq_delivery::Panicked)), is reported and logged. It goes past the layers between, which see no
/// error: `handler(f)` catches its panics itself. The instance that panicked in `call` is called again.
/// Only a panic of the policy goes on, and releases the delivery.
///
/// # Cost
/// No allocation. One more clone of the message, which a policy may have to judge.
#[derive(Clone, Debug)]
pub struct Settler<S> {
    pub(crate) inner: S,
    pub(crate) settings: SettleLayer,
}

impl<S> Settler<S> {
    /// Settles as [`SettleLayer::new`] says.
    pub const fn new(inner: S) -> Self {
        Self { inner, settings: SettleLayer::new() }
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
}

impl<S> Service<Delivery> for Settler<S>
where
    S: Service<Message>,
    S::Response: IntoOutcome,
    S::Error: Into<BoxError>,
{
    type Response = Settled;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(always)]
    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let (mut message, acker) = delivery.into_parts();
        let confirmed = self.settings.confirmed;
        let mut duty = Duty::Due(acker);
        let generation = message.generation();
        if generation.is_over() || generation.origin().drain() == Some(Drain::Release) {
            return not_handled(message, duty.post(Outcome::Release), confirmed);
        }
        if self.settings.before {
            duty = duty.post(Outcome::Ack);
            if duty.is_lost() {
                return not_handled(message, duty, confirmed);
            }
        }
        if let Some(policy) = &self.settings.policy {
            message.set_policy(policy.clone());
        }
        let mut response = ResponseFuture::new(duty, message.aside(), confirmed);
        // It takes its place inside the net: a future is large, and so it is moved less.
        let called = catch_unwind(AssertUnwindSafe(|| response.start(self.inner.call(message))));
        if let Err(panic) = called {
            response.fail(&panic);
        }
        response
    }
}

// The inner service was readied and is not called. It stays ready, and Tower allows to ask it again. But a lane must not
// keep a place under a limit for it.
#[cold]
fn not_handled<F>(message: Message, duty: Duty, confirmed: bool) -> ResponseFuture<F> {
    message.turn().decline();
    message.origin().report(&Event::NotHandled { message: &message });
    ResponseFuture::new(duty, message, confirmed)
}
