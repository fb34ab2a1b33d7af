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
};
use crate::source::{
    Control, Reconnect, SourceError,
    reconnect::{Established, establish},
};

type Reply = oneshot::Sender<Result<Receipt, PublishError>>;

/// One publication. It keeps its room until it is answered.
pub(super) struct Order {
    pub(super) routed: Routed,
    pub(super) payload: Bytes,
    pub(super) reply: Reply,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What the task needs for its whole life.
pub(super) struct Press {
    pub(super) control: Control,
    pub(super) broker: Broker,
    pub(super) reconnect: Reconnect,
    pub(super) desk: mpsc::UnboundedReceiver<Order>,
}

/// An order under way; its error, if it shows that the channel is gone.
type Printing = Pin<Box<dyn Future<Output = Option<Error>> + Send>>;

impl Press {
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
            let lost = self.print(&link.1).await;
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
        // Whoever waits for room learns that there will be none; the orders that were not sent are dropped.
        room.close();
    }

    /// Publishes until the channel is gone. `None`: there is nobody left to publish for.
    async fn print(&mut self, channel: &Channel) -> Option<Error> {
        let mut printing = FuturesUnordered::<Printing>::new();
        let mut open = true;
        let lost = loop {
            tokio::select! {
                biased;
                Some(lost) = printing.next() => if let Some(error) = lost { break error },
                order = self.desk.recv(), if open => {
                    let Some(order) = order else {
                        open = false;
                        continue;
                    };
                    let mut order: Printing = Box::pin(print(channel.clone(), order));
                    // The first poll hands the message to the client: orders go out in their order.
                    match (&mut order).now_or_never() {
                        Some(Some(error)) => break error,
                        Some(None) => {}
                        None => printing.push(order),
                    }
                }
                else => return None,
            }
        };
        // All that is under way fails with the channel.
        let rest = async { while printing.next().await.is_some() {} };
        let _ = timeout(CLOSE_AT_MOST, rest).await;
        Some(lost)
    }
}

async fn print(channel: Channel, order: Order) -> Option<Error> {
    let Order { routed: Routed { exchange, routing_key, properties }, payload, reply, _permit } = order;
    if reply.is_closed() {
        // Nobody wants it any more.
        return None;
    }
    let destination = match exchange.as_str() {
        "" => format!("queue `{routing_key}`"),
        _ => format!("exchange `{exchange}`, routing key `{routing_key}`"),
    };
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let confirmed =
        async { channel.basic_publish(exchange, routing_key, options, &payload, properties).await?.await };
    let (answer, lost) = match confirmed.await {
        Ok(Confirmation::Ack(None)) => (Ok(Receipt::new()), None),
        Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => {
            (Err(PublishError::Unroutable { destination }), None)
        }
        Ok(Confirmation::Nack(None)) => (Err(PublishError::Refused { destination }), None),
        Ok(Confirmation::NotRequested) => {
            (Err(PublishError::Invalid("the broker was not asked to confirm".into())), None)
        }
        Err(error) => (Err(PublishError::Lost { destination, error: error.clone().into() }), Some(error)),
    };
    let _ = reply.send(answer);
    lost
}
