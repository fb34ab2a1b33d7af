//! Layers that only look: they keep request, response and error.

use std::task::{Context, Poll};

use futures_util::{TryFutureExt, future::MapOk};
use tower::{Layer, Service};
use tower_mq::{Carry, Decided};
use tracing::{Instrument, Span, instrument::Instrumented};

macro_rules! layer {
    ($layer:ident => $service:ident) => {
        #[derive(Clone, Debug)]
        pub struct $layer(&'static str);

        impl<S> Layer<S> for $layer {
            type Service = $service<S>;

            fn layer(&self, inner: S) -> $service<S> {
                $service { inner, place: self.0 }
            }
        }

        #[derive(Clone, Debug)]
        pub struct $service<S> {
            inner: S,
            place: &'static str,
        }
    };
}

layer!(BreakerLayer => Breaker);
layer!(TraceLayer => Trace);

impl BreakerLayer {
    pub const fn new() -> Self {
        Self("breaker")
    }
}

impl TraceLayer {
    pub const fn new() -> Self {
        Self("trace")
    }
}

/// Those that look at the outcome.
macro_rules! looks {
    ($service:ident) => {
        impl<S, R> Service<R> for $service<S>
        where
            R: Carry,
            S: Service<R>,
            S::Response: Decided,
        {
            type Response = S::Response;
            type Error = S::Error;
            type Future = MapOk<S::Future, fn(S::Response) -> S::Response>;

            fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
                self.inner.poll_ready(cx)
            }

            fn call(&mut self, request: R) -> Self::Future {
                tracing::trace!(place = self.place, messages = request.messages().len());
                self.inner.call(request).map_ok(|response| {
                    tracing::trace!(outcome = ?response.decided());
                    response
                })
            }
        }
    };
}

looks!(Breaker);

impl<S, R> Service<R> for Trace<S>
where
    R: Carry,
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let span = tracing::info_span!("process", messages = request.messages().len());
        let _entered = Span::enter(&span);
        self.inner.call(request).instrument(span.clone())
    }
}
