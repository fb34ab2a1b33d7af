//! `source::rabbitmq` keeps the contract of a source, on each kind of queue.

#[path = "../support/node.rs"]
mod node;
#[path = "../support/proxy.rs"]
#[allow(dead_code, unreachable_pub)]
mod proxy;

use std::time::Duration;

use lapin::{
    BasicProperties,
    options::QueueDeleteOptions,
    types::{AMQPValue, FieldTable},
};
use node::{TestQueue, address, text, url_at};
use proxy::Proxy;
use tower_mq::{
    BoxError, Message,
    source::{
        Reconnect,
        rabbitmq::{Deliveries, OnReject, Queue},
    },
    testing::contract::{self, Rig},
};

/// A queue of this kind, with a dead-letter queue, behind a proxy that cuts.
struct Node {
    kind: &'static str,
    /// Not set: nobody says what becomes of a reject.
    on_reject: Option<OnReject>,
    proxy: Proxy,
    queues: Option<Queues>,
}

struct Queues {
    orders: TestQueue,
    dead: TestQueue,
}

impl Node {
    fn new(kind: &'static str, on_reject: Option<OnReject>) -> Result<Self, BoxError> {
        Ok(Self { kind, on_reject, proxy: Proxy::start(address())?, queues: None })
    }

    fn queues(&self) -> Result<&Queues, BoxError> {
        Ok(self.queues.as_ref().ok_or("no queue was declared")?)
    }
}

impl Rig for Node {
    type Source = Deliveries;

    async fn empty(&mut self) -> Result<(), BoxError> {
        let dead = TestQueue::declare("contract-dead", self.kind, &[]).await?;
        let to_dead = [
            ("x-dead-letter-exchange", AMQPValue::LongString("".into())),
            ("x-dead-letter-routing-key", text(&dead.name)),
        ];
        let orders = TestQueue::declare("contract", self.kind, &to_dead).await?;
        self.queues = Some(Queues { orders, dead });
        Ok(())
    }

    async fn publish(&mut self, message: Message) -> Result<(), BoxError> {
        let mut headers = FieldTable::default();
        if let Some(key) = message.key() {
            headers.insert("amqp-partition-key".into(), text(std::str::from_utf8(key)?));
        }
        let properties = BasicProperties::default().with_headers(headers);
        self.queues()?.orders.publish(message.payload(), properties).await
    }

    async fn consume(&mut self, window: usize) -> Result<Deliveries, BoxError> {
        let quick = Reconnect::new().backoff(Duration::from_millis(20), Duration::from_millis(500));
        let queue = Queue::new(&self.queues()?.orders.name).prefetch(window.try_into()?).reconnect(quick);
        let queue = match self.on_reject {
            Some(on_reject) => queue.on_reject(on_reject),
            None => queue,
        };
        Ok(queue.connect(&url_at(self.proxy.address())).await?)
    }

    async fn cut(&mut self) -> Result<bool, BoxError> {
        self.proxy.cut();
        Ok(true)
    }

    async fn ruin(&mut self) -> Result<bool, BoxError> {
        let Queues { orders, .. } = self.queues()?;
        orders.channel.queue_delete(orders.name.as_str().into(), QueueDeleteOptions::default()).await?;
        Ok(true)
    }

    async fn ready(&mut self) -> Result<Option<usize>, BoxError> {
        Ok(Some(self.queues()?.orders.ready().await?.try_into()?))
    }

    async fn dead_letters(&mut self) -> Result<Option<usize>, BoxError> {
        if self.on_reject != Some(OnReject::BrokerDeadLetters) {
            return Ok(None);
        }
        let Queues { dead, .. } = self.queues()?;
        dead.becomes_ready(1).await?;
        Ok(Some(dead.ready().await?.try_into()?))
    }
}

#[tokio::test]
async fn a_classic_queue_keeps_the_contract() -> Result<(), BoxError> {
    contract::source(&mut Node::new("classic", Some(OnReject::BrokerDeadLetters))?).await;
    Ok(())
}

#[tokio::test]
async fn a_quorum_queue_keeps_the_contract() -> Result<(), BoxError> {
    contract::source(&mut Node::new("quorum", Some(OnReject::BrokerDeadLetters))?).await;
    Ok(())
}

/// Nobody says what becomes of a reject, so it becomes a release.
#[tokio::test]
async fn a_queue_without_a_word_about_rejects_keeps_the_contract() -> Result<(), BoxError> {
    contract::source(&mut Node::new("classic", None)?).await;
    Ok(())
}
