//! Runs a service over a source.

mod intake;
mod report;
mod serving;

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tower_mq_delivery::{BoxError, Delivery, Drain, Observer};
use tower_service::Service;

use crate::source::Source;
pub use report::{Ended, Report, ServeError};
use serving::{Run, Serving, Settings};

/// Runs `service` over the deliveries of `source`, until the source ends or a shutdown is asked for.
///
/// Any service runs one delivery at a time, in the source's order. It runs many at a time as soon as a layer anywhere
/// in the stack takes over the order: partition, batch. There is no other setting for it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_mq::BoxError> {
/// use futures_util::{StreamExt, stream};
/// use tower::service_fn;
/// use tower_mq::{Delivery, Message, Outcome, serve, source::from_stream};
///
/// let deliveries = stream::iter(["a", "b"]).map(|text| Delivery::detached(Message::new(text)));
/// let service = service_fn(|delivery: Delivery| async move { delivery.settle(Outcome::Ack).await });
///
/// let report = serve(from_stream(deliveries), service).await?;
/// assert_eq!(report.counts.acked, 2);
/// # Ok(())
/// # }
/// ```
///
/// # Order
/// The source's order, unless a layer takes it over.
///
/// # Errors
/// The end of the source that nobody asked for, and a service that will never be ready again, are errors. An error in
/// a *response* is not: with a settle layer in the stack it means that one settlement failed. It is logged and counted
/// ([`Report::errors`]).
///
/// # Panics
/// A panic of the service's future is caught, logged and counted; its delivery is released. A panic in `poll_ready` or
/// `call` leaves a service that cannot be trusted: it ends the run, with an error.
///
/// Outside of a tokio runtime with time, when the run comes to its end.
///
/// # Cancel safety
/// Dropping it drops everything that runs: the deliveries are released. For an orderly end use
/// [`with_graceful_shutdown`](Serve::with_graceful_shutdown).
///
/// # Cost
/// One allocation for each run, none for each delivery. Awaited directly in `main` of a multi-thread runtime it runs
/// outside of the workers, and every wake-up crosses threads: `tokio::spawn(serve(..))` is faster there.
pub fn serve<'a, Src, Svc>(source: Src, service: Svc) -> Serve<'a>
where
    Src: Source + Send + 'a,
    Svc: Service<Delivery> + Send + 'a,
    Svc::Error: Into<BoxError>,
    Svc::Future: Send + 'a,
{
    Serve { run: Box::pin(Serving::new(source, service)) }
}

/// A run that was set up and waits to be awaited. See [`serve`].
///
/// Its type does not mention the stack: a mistake in a stack is reported once, at the stack.
#[must_use = "nothing is served until it is awaited"]
pub struct Serve<'a> {
    run: Pin<Box<dyn Run<'a> + Send + 'a>>,
}

impl<'a> Serve<'a> {
    /// Begins an orderly end when `signal` completes: nothing more is taken, what was taken is finished or released
    /// ([`on_shutdown`](Self::on_shutdown)), settlements are flushed, and the broker's side is closed.
    ///
    /// Its output does not matter, so `tokio::signal::ctrl_c()` fits as it is.
    pub fn with_graceful_shutdown<F: Future + Send + 'a>(mut self, signal: F) -> Self {
        self.settings().signal = Some(Box::pin(async move {
            signal.await;
        }));
        self
    }

    /// What happens to deliveries that were taken and have not started. Default: [`Drain::Finish`].
    pub fn on_shutdown(mut self, drain: Drain) -> Self {
        self.settings().drain = drain;
        self
    }

    /// How long what runs may go on after the end has begun, whoever began it. Then it is dropped, which releases its
    /// deliveries, and counted as abandoned. Default: 30 s.
    ///
    /// Closing the broker's side has as much time again, but at most 5 s.
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.settings().drain_timeout = limit;
        self
    }

    /// Tells `observer` of everything that happens to deliveries, beside those that are told already.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings().observer = Some(observer.shared());
        self
    }

    fn settings(&mut self) -> &mut Settings<'a> {
        self.run.as_mut().settings()
    }
}

impl Future for Serve<'_> {
    type Output = Result<Report, ServeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.run.as_mut().poll(cx)
    }
}

impl fmt::Debug for Serve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").finish_non_exhaustive()
    }
}
