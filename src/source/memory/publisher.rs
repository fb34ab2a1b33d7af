//! Publishing as a service.

use std::{
    borrow::Cow,
    error::Error,
    fmt,
    future::{Ready, ready},
    task::{Context, Poll},
};

use tower_mq_delivery::{NotStored, Publication, Receipt};
use tower_service::Service;

use super::broker::Broker;

/// Publishes to the in-process broker: `Service<Publication, Response = Receipt>`, done when the message is stored.
///
/// The message is stored in [`call`](Service::call); the future only reports.
///
/// A queue that is not there is made.
#[derive(Clone, Debug)]
pub struct Publisher {
    broker: Broker,
    destination: Option<Cow<'static, str>>,
}

impl Publisher {
    pub(super) fn new(broker: Broker) -> Self {
        Self { broker, destination: None }
    }

    /// Publishes to this queue, where a publication names none.
    #[must_use]
    pub fn to(&self, queue: impl Into<Cow<'static, str>>) -> Self {
        Self { destination: Some(queue.into()), ..self.clone() }
    }
}

impl Service<Publication> for Publisher {
    type Response = Receipt;
    type Error = PublishError;
    type Future = Ready<Result<Receipt, PublishError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut publication: Publication) -> Self::Future {
        let named = publication.destination.take();
        ready(match named.as_ref().or(self.destination.as_ref()) {
            Some(queue) => self.broker.store(queue, publication),
            None => Err(PublishError::NoDestination),
        })
    }
}

/// Why a message was not stored: [`NotStored`] is the source of each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// Neither the publication nor the publisher names a queue.
    NoDestination,
    /// The broker was closed.
    Closed {
        /// Where to.
        queue: Box<str>,
    },
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDestination => f.write_str(
                "nobody said where to publish to: name a queue with `Publication::to` or `Publisher::to`",
            ),
            Self::Closed { queue } => {
                write!(f, "the in-process broker was closed, so nothing can be published to `{queue}`")
            }
        }
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&NotStored)
    }
}
