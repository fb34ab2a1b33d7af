//! The task that owns a publisher's connection.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{Channel, Confirmation, Connection, Error, options::BasicPublishOptions};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};
use tower_mq_delivery::{BoxError, Receipt, SharedError};

use super::{
    compose::Routed,
    connect::{Broker, CLOSE_AT_MOST, close},
    error::PublishError,
    size,
};
use crate::source::{
    Control, Reconnect, SourceError,
    reconnect::{Established, establish},
};

type Reply = oneshot::Sender<Result<Receipt, PublishError>>;

/// A publication that the broker has not confirmed. It keeps its room until it is answered.
pub(super) struct Unconfirmed {
    pub(super) routed: Routed,
    pub(super) payload: Bytes,
    pub(super) reply: Reply,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What the task needs for its whole life.
pub(super) struct Confirms {
    pub(super) control: Control,
    pub(super) broker: Broker,
    pub(super) reconnect: Reconnect,
    pub(super) publications: mpsc::UnboundedReceiver<Unconfirmed>,
}

/// A publication under way; its error, if it shows that the channel is gone.
type Confirming = Pin<Box<dyn Future<Output = Option<Error>> + Send>>;

impl Confirms {
    pub(super) async fn connect(
        &self,
        lost: Option<(Instant, SharedError)>,
    ) -> Result<Established<(Arc<Connection>, Channel)>, SourceError> {
        establish(&self.control, &self.reconnect, self.broker.name(), lost, || self.broker.publish()).await
    }

    /// Runs until the last publisher is gone, or there will be no connection any more.
    pub(super) async fn run(mut self, mut link: (Arc<Connection>, Channel), room: Arc<Semaphore>) {
        let mut generation = 1;
        let ended = loop {
            let lost = self.publish(&link).await;
            let (connection, since) = (link.0, Instant::now());
            let Some(error) = lost else {
                let _ = timeout(CLOSE_AT_MOST, close(&connection)).await;
                break None;
            };
            // It may be only the channel that is gone.
            tokio::spawn(async move { timeout(CLOSE_AT_MOST, close(&connection)).await });
            let error = SharedError::from(BoxError::from(error));
            match self.connect(Some((since, error))).await {
                Ok(Established::Yes(new)) => link = new,
                Ok(Established::Closed) => break None,
                Err(error) => break Some(BoxError::from(error).into()),
            }
            generation += 1;
            self.control.connected(generation);
        };
        self.control.closed(ended);
        // Whoever waits for room learns that there will be none; publications that were not sent are dropped.
        room.close();
    }

    /// Publishes until the channel is gone. `None`: there is nobody left to publish for.
    async fn publish(&mut self, (connection, channel): &(Arc<Connection>, Channel)) -> Option<Error> {
        let frame_max = connection.configuration().frame_max();
        let mut confirming = FuturesUnordered::<Confirming>::new();
        let mut open = true;
        let lost = loop {
            tokio::select! {
                biased;
                Some(lost) = confirming.next() => if let Some(error) = lost { break error },
                publication = self.publications.recv(), if open => {
                    let Some(publication) = publication else {
                        open = false;
                        continue;
                    };
                    let mut confirmation: Confirming = Box::pin(confirm(channel.clone(), frame_max, publication));
                    // The first poll hands the message to the client: publications go out in their order.
                    match (&mut confirmation).now_or_never() {
                        Some(Some(error)) => break error,
                        Some(None) => {}
                        None => confirming.push(confirmation),
                    }
                }
                else => return None,
            }
        };
        // All that is under way fails with the channel.
        let rest = async { while confirming.next().await.is_some() {} };
        let _ = timeout(CLOSE_AT_MOST, rest).await;
        Some(lost)
    }
}

async fn confirm(channel: Channel, frame_max: u32, publication: Unconfirmed) -> Option<Error> {
    let Unconfirmed { routed: Routed { exchange, routing_key, properties }, payload, reply, _permit } =
        publication;
    if reply.is_closed() {
        // Nobody wants it any more.
        return None;
    }
    let size = size::frame(&properties);
    if size > usize::try_from(frame_max).unwrap_or(usize::MAX) {
        let what =
            format!("headers and properties take {size} bytes, and this broker takes {frame_max} at most");
        let _ = reply.send(Err(PublishError::Invalid(what.into())));
        return None;
    }
    let elsewhere = !exchange.as_str().is_empty();
    let destination = match elsewhere {
        false => format!("queue `{routing_key}`"),
        true => format!("exchange `{exchange}`, routing key `{routing_key}`"),
    };
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let confirmed =
        async { channel.basic_publish(exchange, routing_key, options, &payload, properties).await?.await };
    let (answer, lost) = match confirmed.await {
        Ok(Confirmation::Ack(None)) => (Ok(Receipt::new()), None),
        Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => {
            (Err(PublishError::Unroutable { destination }), None)
        }
        Ok(Confirmation::Nack(None)) => (Err(PublishError::Refused { destination, elsewhere }), None),
        Ok(Confirmation::NotRequested) => {
            (Err(PublishError::Invalid("the broker was not asked to confirm".into())), None)
        }
        Err(error) => (Err(PublishError::Lost { destination, error: error.clone().into() }), Some(error)),
    };
    let _ = reply.send(answer);
    lost
}
