//! Publishing as a service.

use std::{
    borrow::Cow,
    future::{Ready, ready},
    task::{Context, Poll},
};

use tower_mq_delivery::{Publication, Receipt};
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

/// Why a message was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Neither the publication nor the publisher names a queue.
    #[error("nobody said where to publish to: name a queue with `Publication::to` or `Publisher::to`")]
    NoDestination,
    /// The broker was closed.
    #[error("the in-process broker was closed, so nothing can be published to `{queue}`")]
    Closed {
        /// Where to.
        queue: Box<str>,
    },
}
