//! One try to publish the copy.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use tokio::time::sleep;
use tower_mq_delivery::{BoxError, Event, Message, NotStored, Panicked, Publication, Receipt};
use tower_service::Service;

use crate::{NotConfirmed, service::Shared};

/// A try that was not confirmed.
pub(crate) struct Failed {
    pub(crate) error: BoxError,
    pub(crate) may_be_stored: bool,
}

impl Failed {
    /// The publisher was not called.
    pub(crate) fn before(error: impl Into<BoxError>) -> Self {
        Self { error: error.into(), may_be_stored: false }
    }

    /// The publisher was called.
    fn after(error: impl Into<BoxError>) -> Self {
        let error = error.into();
        Self { may_be_stored: !NotStored::is_in(&*error), error }
    }
}

/// Publishes the copy once, through a publisher that is readied for it.
pub(crate) async fn attempt<P>(
    shared: &Shared<P>,
    message: &Message,
    copy: Publication,
) -> Result<Receipt, Failed>
where
    P: Service<Publication, Response = Receipt> + Clone,
    P::Error: Into<BoxError>,
{
    let mut publisher = caught(message, || shared.publisher()).map_err(Failed::before)?;
    let result = publish(&mut publisher, shared.settings.timeout, message, copy).await;
    // What the broker has confirmed is confirmed, whatever the publisher does when it is dropped.
    let _panic = caught(message, move || drop(publisher));
    result
}

async fn publish<P>(
    publisher: &mut P,
    limit: std::time::Duration,
    message: &Message,
    copy: Publication,
) -> Result<Receipt, Failed>
where
    P: Service<Publication, Response = Receipt>,
    P::Error: Into<BoxError>,
{
    let (mut time, mut over) = (pin!(sleep(limit)), pin!(message.generation().over()));
    let ready = poll_fn(|cx| {
        if over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(NotConfirmed::Stale.into()));
        }
        match caught(message, || publisher.poll_ready(cx).map_err(Into::into)) {
            Ok(Poll::Pending) => time
                .as_mut()
                .poll(cx)
                .map(|()| Err(NotConfirmed::NotReady { limit, not_stored: NotStored }.into())),
            Ok(ready) => ready,
            Err(panic) => Poll::Ready(Err(panic)),
        }
    });
    ready.await.map_err(Failed::before)?;

    let mut publishing = Box::pin(caught(message, || publisher.call(copy)).map_err(Failed::after)?);
    let confirmed = poll_fn(|cx| {
        match caught(message, || publishing.as_mut().poll(cx).map_err(Into::into)) {
            Ok(Poll::Pending) => {}
            Ok(ready) => return ready,
            Err(panic) => return Poll::Ready(Err(panic)),
        }
        if over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(NotConfirmed::Stale.into()));
        }
        time.as_mut().poll(cx).map(|()| Err(NotConfirmed::TimedOut { limit }.into()))
    });
    let result = confirmed.await.map_err(Failed::after);
    let _panic = caught(message, move || drop(publishing));
    result
}

/// A panic as an error, after everybody has heard of it.
pub(crate) fn caught<T>(message: &Message, run: impl FnOnce() -> T) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let error = Panicked::new(&panic);
        tracing::error!(destination = %message.destination(), %error, "the publisher of dead letters panicked");
        message.origin().report(&Event::Panicked { message: Some(message) });
        error.into()
    })
}
