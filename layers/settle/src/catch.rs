//! A panic becomes an error, next to the handler.

pub mod future;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_mq_delivery::{BoxError, Carry, Event, Message, Panic, Panicked};
use tower_service::Service;

use self::future::ResponseFuture;

/// Makes an error of a panic, so that retry and dead-letter layers see it.
///
/// A panic that nobody catches goes past all layers up to Settle, which judges it as any error: it is not retried in
/// place, and not copied to the dead letters. `handler(f)` catches its own panics. This is for other services: put it next
/// to yours.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_mq_delivery::{BoxError, Message, Panicked};
/// use tower_mq_settle::CatchPanicLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let stack = ServiceBuilder::new().layer(CatchPanicLayer::new()).service_fn(|order: Message| async move {
///     let apples = order.payload()[0];
///     println!("{apples} apples");
///     Ok::<_, BoxError>(())
/// });
/// let error = stack.oneshot(Message::new("")).await.unwrap_err();
/// assert!(error.is::<Panicked>());
/// # }
/// ```
///
/// # Order
/// Next to the handler, inside Batch and the retry and dead-letter layers. Layers between this one and the handler are caught, too.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct CatchPanicLayer;

impl CatchPanicLayer {
    /// There is nothing to set.
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for CatchPanicLayer {
    type Service = CatchPanic<S>;

    fn layer(&self, inner: S) -> CatchPanic<S> {
        CatchPanic::new(inner)
    }
}

/// Makes an error of a panic: [`Panicked`]. Built by [`CatchPanicLayer`].
///
/// # Panics
/// A panic in `call`, or while the response runs or is dropped after its end, is the error of this response, is reported
/// and logged. The instance that panicked in `call` is called again. One in `poll_ready` is an error of readiness, which ends
/// the service, and is logged.
///
/// # Cancel safety
/// Dropping the response future drops the inner one. If that panics, the panic goes on.
///
/// # Cost
/// No allocation, and one more clone of the message.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanic<S> {
    inner: S,
}

impl<S> CatchPanic<S> {
    /// Around `inner`.
    pub const fn new(inner: S) -> Self {
        Self { inner }
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

impl<S, R> Service<R> for CatchPanic<S>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    R: Carry,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match catch_unwind(AssertUnwindSafe(|| self.inner.poll_ready(cx))) {
            Ok(ready) => ready.map_err(Into::into),
            Err(panic) => {
                let error = Panicked::new(&panic);
                tracing::error!(%error, "a service panicked when it was asked whether it is ready");
                Poll::Ready(Err(error.into()))
            }
        }
    }

    #[inline]
    fn call(&mut self, request: R) -> Self::Future {
        let blamed = Blamed::of(&request);
        match catch_unwind(AssertUnwindSafe(|| self.inner.call(request))) {
            Ok(future) => ResponseFuture::running(future, blamed),
            Err(panic) => ResponseFuture::panicked(blamed.panicked(&panic)),
        }
    }
}

/// What was handled when the panic came.
pub(crate) struct Blamed {
    first: Option<Message>,
    others: bool,
}

impl Blamed {
    fn of<R: Carry>(request: &R) -> Self {
        let messages = request.messages();
        Self { first: messages.first().cloned(), others: messages.len() > 1 }
    }

    /// The panic as an error, after everybody has heard of it.
    #[cold]
    pub(crate) fn panicked(&self, panic: &Panic) -> BoxError {
        let error = Panicked::new(panic);
        if let Some(first) = &self.first {
            tracing::error!(destination = %first.destination(), attempt = first.attempt(), %error, "a service panicked");
            // In a batch nobody knows which of them it was.
            let message = Some(first).filter(|_| !self.others);
            first.origin().report(&Event::Panicked { message });
        }
        error.into()
    }
}
