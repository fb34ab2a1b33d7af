//! The task that owns the connection: it takes, tells, reconnects and closes.

use std::{future::pending, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt};
use lapin::{
    Channel, ErrorKind,
    message::Delivery,
    options::{BasicAckOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions},
    types::ShortString,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout},
};
use tower_mq_delivery::{BoxError, Generation, SharedError};

use super::{
    OnReject,
    connect::{Broker, CLOSE_AT_MOST, Link, close},
    convert::convert,
    prefetched::{Prefetched, Waiting},
    settle::{MOST_FRAMES, Settler, Taken, requeues},
    tried::Tried,
};
use crate::source::{
    Control, Demand, Reconnect, SourceError,
    ledger::multiple::Frame,
    reconnect::{Established, establish},
};

/// What the task needs for its whole life.
pub(super) struct Pump {
    pub(super) control: Control,
    pub(super) broker: Broker,
    pub(super) reconnect: Reconnect,
    pub(super) queue: ShortString,
    pub(super) consumer_tag: ShortString,
    pub(super) prefetch: u16,
    pub(super) key_header: Box<str>,
    pub(super) on_reject: Option<OnReject>,
    pub(super) prefetched: Arc<Prefetched>,
    pub(super) tried: Arc<Tried>,
}

/// How the life of a connection ended.
enum End {
    Closed,
    Lost {
        error: SharedError,
        /// How long the broker may take to notice, too.
        rest: Duration,
    },
}

/// How long a broker is given to take back what a cut connection held.
const AFTER_CUT: Duration = Duration::from_millis(250);

type Flush = Pin<Box<dyn Future<Output = lapin::Result<()>> + Send>>;

// The stream must end whatever happens to the task.
impl Drop for Pump {
    fn drop(&mut self) {
        self.prefetched.end();
    }
}

impl Pump {
    /// Connects: the first time, or, with the loss of the last connection, again, and then not before `rest` is over.
    pub(super) async fn connect(
        &self,
        lost: Option<(Instant, SharedError)>,
        rest: Duration,
    ) -> Result<Established<Link>, SourceError> {
        let not_before = Instant::now() + rest;
        establish(&self.control, &self.reconnect, self.broker.name(), lost, || async move {
            sleep_until(not_before).await;
            self.broker.consume(&self.queue, &self.consumer_tag, self.prefetch).await
        })
        .await
    }

    /// Runs until the source is closed, or cannot go on.
    pub(super) async fn run(self, link: Link, ended: oneshot::Sender<Result<(), SourceError>>) {
        let result = self.live(link).await;
        let error = result.as_ref().err().map(|error| SharedError::from(BoxError::from(error.to_string())));
        self.control.closed(error);
        // Nobody may be waiting any more.
        let _ = ended.send(result);
    }

    async fn live(&self, mut link: Link) -> Result<(), SourceError> {
        let mut generation = Generation::first(self.control.origin().clone());
        loop {
            let settler =
                Settler::new(generation.clone(), self.control.clone(), self.tried.clone(), self.on_reject);
            let settler = Arc::new(settler);
            let end = self.serve(&mut link, &settler).await;
            let since = Instant::now();
            settler.end();
            self.prefetched.clear();
            match end {
                End::Closed => {
                    self.part(link).await;
                    return Ok(());
                }
                End::Lost { error, rest } => {
                    // It may be only the channel or the queue that is gone. As long as the broker keeps the rest of
                    // the window for it, a new connection would be handed what comes behind that.
                    if link.connection.status().connected() {
                        let _ = timeout(CLOSE_AT_MOST, close(&link.connection)).await;
                    }
                    tokio::spawn(bury(link));
                    if self.control.demand().is_close() {
                        tracing::warn!(
                            source = self.control.origin().name(),
                            %error,
                            "the connection was lost while closing; what the broker was not told comes again"
                        );
                        return Ok(());
                    }
                    match self.connect(Some((since, error)), rest).await? {
                        Established::Yes(new) => link = new,
                        Established::Closed => return Ok(()),
                    }
                }
            }
            generation = generation.next();
            self.control.connected(generation.number());
        }
    }

    /// Takes and tells, until the connection is lost, or the source is closed and everything is decided and told.
    async fn serve(&self, link: &mut Link, settler: &Arc<Settler>) -> End {
        let mut demand = Demand::Take;
        let mut flush: Option<Flush> = None;
        let mut batch = Vec::new();
        let timer = sleep_until(Instant::now());
        tokio::pin!(timer);
        loop {
            if flush.is_none() {
                let frames = settler.frames(Instant::now());
                if !frames.is_empty() {
                    flush = Some(Box::pin(tell(link.channel.clone(), frames, self.prefetch)));
                } else if demand.is_close() && settler.is_done() {
                    return End::Closed;
                }
            }
            // While frames are under way there is no more to send, however old it gets.
            let due = if flush.is_none() { settler.due() } else { None };
            if let Some(due) = due
                && timer.deadline() != due
            {
                timer.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                asked = self.control.demand_other_than(demand), if !demand.is_close() => {
                    demand = asked;
                    if demand.is_close() {
                        settler.close(self.prefetched.clear());
                    }
                }
                told = under_way(&mut flush) => {
                    flush = None;
                    if let Err(error) = told {
                        return lost(error, link);
                    }
                }
                () = settler.posted() => {}
                () = &mut timer, if due.is_some() => {}
                next = link.consumer.next() => {
                    let mut next = Some(next);
                    // Whatever else is there already, in one go; there is no more than a window of it.
                    while let Some(delivery) = next.take() {
                        match delivery {
                            Some(Ok(delivery)) if demand.is_close() => drop(delivery),
                            Some(Ok(delivery)) => {
                                if let Err(error) = self.take(delivery, settler, &mut batch) {
                                    return End::Lost { error, rest: Duration::ZERO };
                                }
                            }
                            Some(Err(error)) => return lost(error, link),
                            None => {
                                let what = "the broker cancelled the consumer: the queue was deleted, or its node went down";
                                return End::Lost { error: BoxError::from(what).into(), rest: Duration::ZERO };
                            }
                        }
                        next = link.consumer.next().now_or_never();
                    }
                    self.prefetched.extend(&mut batch);
                }
            }
        }
    }

    fn take(
        &self,
        delivery: Delivery,
        settler: &Arc<Settler>,
        batch: &mut Vec<Waiting>,
    ) -> Result<(), SharedError> {
        // The client still hands out what it had of a channel that ended.
        if !delivery.acker.usable() {
            return Ok(());
        }
        let converted = convert(delivery, settler.generation(), &self.key_header, &self.tried);
        if converted.keyless {
            let warning = format!(
                "the header `{}` of a message is a table or an array: it has no key",
                self.key_header
            );
            self.control.origin().warn(&warning);
        }
        match settler.take(converted.taken) {
            Some(token) => {
                batch.push(Waiting { message: converted.message, token, settler: settler.clone() });
                Ok(())
            }
            None => {
                let what = format!(
                    "the broker sent more than the {} unsettled deliveries it was asked for",
                    self.prefetch
                );
                Err(BoxError::from(what).into())
            }
        }
    }

    /// Closes a connection on which all is told. The broker gives back what it had sent beyond that, in its order.
    async fn part(&self, link: Link) {
        let last_words = async {
            // An answer proves that the acks before it were processed.
            link.channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
            link.connection.close(200, ShortString::default()).await
        };
        match timeout(CLOSE_AT_MOST, last_words).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(source = self.control.origin().name(), %error, "the broker did not answer the last acks");
            }
            Err(_) => {
                tracing::warn!(source = self.control.origin().name(), "the broker did not answer in time");
                tokio::spawn(bury(link));
            }
        }
    }
}

/// For ever, if there is none.
async fn under_way(flush: &mut Option<Flush>) -> lapin::Result<()> {
    match flush {
        Some(flush) => flush.await,
        None => pending().await,
    }
}

#[cold]
fn lost(error: lapin::Error, link: &Link) -> End {
    // As long as the broker keeps the window for the dead connection, it would hand out to the next one what comes
    // behind it. It misses our heartbeats as we miss its own, and notices later: after two to three intervals, where the
    // client takes two. A cut it notices at once, but under load its queue takes the window back after a new connection
    // has come.
    let rest = match error.kind() {
        ErrorKind::MissingHeartbeatError => {
            Duration::from_secs(link.connection.configuration().heartbeat().into()).mul_f64(1.5)
        }
        _ => AFTER_CUT,
    };
    End::Lost { error: BoxError::from(error).into(), rest }
}

/// Closes a connection that is of no more use, and keeps its consumer until it is closed.
async fn bury(mut link: Link) {
    let _ = timeout(CLOSE_AT_MOST, close(&link.connection)).await;
    // It ends when the connection does: by an answer, an error, or a missing heartbeat.
    while let Some(Ok(_)) = link.consumer.next().await {}
}

/// Sends frames, in their order, and waits until they are written.
async fn tell(channel: Channel, mut frames: Vec<Frame<Taken>>, prefetch: u16) -> lapin::Result<()> {
    let full = frames.len() == MOST_FRAMES;
    let last = frames.pop();
    for frame in frames {
        // The first poll queues a frame, and the client writes them in the order queued.
        if let Some(told) = send(&channel, frame).now_or_never() {
            told?;
        }
    }
    if let Some(last) = last {
        send(&channel, last).await?;
    }
    if full {
        // A quorum queue has enough to do: let the broker answer before there is more.
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    }
    Ok(())
}

async fn send(channel: &Channel, frame: Frame<Taken>) -> lapin::Result<()> {
    match frame {
        Frame::Ack { tag, multiple } => channel.basic_ack(tag.tag, BasicAckOptions { multiple }).await,
        Frame::Negative { tag, outcome } if requeues(&outcome) => {
            channel.basic_nack(tag.tag, BasicNackOptions { multiple: false, requeue: true }).await
        }
        Frame::Negative { tag, .. } => {
            channel.basic_reject(tag.tag, BasicRejectOptions { requeue: false }).await
        }
    }
}
