//! The RabbitMQ node of the tests, its queues, and a handler that keeps a record.

#![allow(dead_code, unreachable_pub)]

use std::{
    collections::HashMap,
    env,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};
use tower_mq::{BoxError, Message, Value};

/// The kinds of queues that all promises are kept on.
pub const KINDS: [&str; 2] = ["classic", "quorum"];

fn variable(name: &str) -> String {
    env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run `tests/run.sh rabbitmq`, which starts a broker"))
}

/// The large numbers were asked for.
pub fn is_full() -> bool {
    env::var_os("TOWER_MQ_FULL").is_some()
}

/// The node's URL.
pub fn url() -> String {
    variable("TOWER_MQ_RABBITMQ_URL")
}

/// The node's URL as seen through something that listens at `address`.
pub fn url_at(address: SocketAddr) -> String {
    url().replace(&address_of(&url()).to_string(), &address.to_string())
}

/// Where the node listens.
pub fn address() -> SocketAddr {
    address_of(&url())
}

fn address_of(url: &str) -> SocketAddr {
    let host = url.split_once('@').expect("the URL has a user").1;
    let host = host.split('/').next().expect("a split has a first part");
    host.parse().expect("the node listens at an IP address")
}

/// Has the node's script do something.
pub async fn script(what: &str) -> String {
    run(&[what]).await
}

/// `rabbitmqctl` for the node.
pub async fn ctl(arguments: &[&str]) -> String {
    run(&[&["ctl"], arguments].concat()).await
}

/// Waits until a quorum queue can be used after a restart of its node.
///
/// RabbitMQ 3.10 takes a while to elect the one member that there is, and a call that comes too early is not only
/// kept waiting: now and then it stops the election, and the queue never works again.
pub async fn quorum_is_up(queue: &str) {
    let state = format!("element(1, sys:get_state(whereis('%2F_{queue}'))).");
    for _ in 0..30 {
        if ctl(&["eval", &state]).await.trim() == "leader" {
            return;
        }
    }
    panic!("{queue} elects nobody");
}

async fn run(arguments: &[&str]) -> String {
    let script = variable("TOWER_MQ_RABBITMQ_SCRIPT");
    let what = arguments.join(" ");
    let mut command = Command::new(script);
    command.args(arguments);
    let run = move || command.output();
    let output = tokio::task::spawn_blocking(run).await.expect("it does not panic").expect("the script runs");
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the script prints text")
}

/// A queue, and a connection to look after it.
pub struct TestQueue {
    pub name: String,
    pub channel: Channel,
    connection: Connection,
}

impl TestQueue {
    /// Declares a durable queue of this kind under a new name.
    pub async fn declare(
        purpose: &str,
        kind: &str,
        arguments: &[(&str, AMQPValue)],
    ) -> Result<Self, BoxError> {
        let name = format!("{purpose}-{kind}-{:08x}", fastrand::u32(..));
        let (connection, channel) = connect().await?;
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), text(kind));
        for (argument, value) in arguments {
            table.insert((*argument).into(), value.clone());
        }
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.as_str().into(), options, table).await?;
        Ok(Self { name, channel, connection })
    }

    /// Publishes one message, persistent.
    pub async fn publish(&self, payload: &[u8], properties: BasicProperties) -> Result<(), BoxError> {
        let confirm = publish(&self.channel, &self.name, payload, properties).await?;
        confirm.await?;
        Ok(())
    }

    /// Publishes orders `0..count`, spread over `keys` keys; see [`order`].
    pub async fn publish_orders(&self, count: u32, keys: u32) -> Result<(), BoxError> {
        let mut confirms = Vec::new();
        for number in 0..count {
            let mut headers = FieldTable::default();
            headers.insert("amqp-partition-key".into(), text(&format!("key-{}", number % keys)));
            let properties = BasicProperties::default().with_headers(headers);
            confirms.push(publish(&self.channel, &self.name, &number.to_be_bytes(), properties).await?);
            if confirms.len() == 1000 {
                for confirm in confirms.drain(..) {
                    confirm.await?;
                }
            }
        }
        for confirm in confirms {
            confirm.await?;
        }
        Ok(())
    }

    /// How many messages are ready, as the queue itself says. Works after a restart of the node, too.
    pub async fn ready(&self) -> Result<u32, BoxError> {
        let (connection, channel) = connect().await?;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = channel.queue_declare(self.name.as_str().into(), options, FieldTable::default()).await?;
        connection.close(200, ShortString::default()).await?;
        Ok(queue.message_count())
    }

    /// Waits until that many messages are ready.
    pub async fn becomes_ready(&self, expected: u32) -> Result<(), BoxError> {
        let mut last = 0;
        for _ in 0..200 {
            last = self.ready().await?;
            if last == expected {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err(format!("{} has {last} ready messages instead of {expected}", self.name).into())
    }

    /// A number of the management API about this queue. It is up to half a second old.
    pub async fn statistic(&self, name: &str) -> Result<u64, BoxError> {
        let queue = http(&format!("/queues/%2f/{}", self.name)).await?;
        Ok(queue[name]
            .as_u64()
            .ok_or_else(|| format!("the management API does not know {name} of {}", self.name))?)
    }
}

/// A connection that looks after queues.
pub async fn connect() -> Result<(Connection, Channel), BoxError> {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok((connection, channel))
}

async fn publish(
    channel: &Channel,
    queue: &str,
    payload: &[u8],
    properties: BasicProperties,
) -> lapin::Result<lapin::PublisherConfirm> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = properties.with_delivery_mode(2);
    channel.basic_publish(ShortString::default(), queue.into(), options, payload, properties).await
}

/// A text as AMQP has it.
pub fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

async fn http(path: &str) -> Result<serde_json::Value, BoxError> {
    let environment = script("env").await;
    let api = environment.lines().find_map(|line| line.strip_prefix("TOWER_MQ_RABBITMQ_HTTP="));
    let api = api.ok_or("the script does not say where the management API is")?;
    let host = api.split_once('@').ok_or("the API has a user")?.1;
    let host = host.split('/').next().ok_or("the API has a host")?;
    let mut stream = TcpStream::connect(host).await?;
    // `guest:guest`
    let request = format!("GET /api{path} HTTP/1.0\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let body = response.split_once("\r\n\r\n").ok_or("the API answers in HTTP")?.1;
    Ok(serde_json::from_str(body)?)
}

/// The number of an order.
pub fn order(message: &Message) -> u32 {
    let payload = message.payload()[..].try_into().expect("an order has four bytes");
    u32::from_be_bytes(payload)
}

/// What the handler of a test has seen.
#[derive(Clone)]
pub struct Record(Arc<Seen>);

struct Seen {
    keys: u32,
    handled: Mutex<HashMap<u32, Vec<u64>>>,
    running: Mutex<HashMap<u32, u32>>,
    at_work: AtomicUsize,
    wrong: Mutex<Vec<String>>,
    last_of_key: Mutex<HashMap<u32, u32>>,
    different: watch::Sender<u32>,
}

impl Record {
    pub fn new(keys: u32) -> Self {
        Self(Arc::new(Seen {
            keys,
            handled: Mutex::default(),
            running: Mutex::default(),
            at_work: AtomicUsize::new(0),
            wrong: Mutex::default(),
            last_of_key: Mutex::default(),
            different: watch::Sender::new(0),
        }))
    }

    /// Handles an order: some take no time, some up to 3 ms.
    pub async fn handle(self, message: Message) -> Result<(), BoxError> {
        let (order, generation) = (order(&message), message.generation().number());
        let key = order % self.0.keys;
        let expected = format!("key-{key}");
        self.check(message.header("amqp-partition-key") == Some(Value::from(&*expected)), || {
            format!("header of {order}")
        });
        self.check(message.key().is_some_and(|key| *key == expected), || format!("key of {order}"));
        // A handler of a lost connection may still be at work when its successor gets the message again.
        let before = self.0.running.lock().insert(key, generation as u32);
        self.check(before.is_none_or(|before| before < generation as u32), || {
            format!("{order} runs beside its key")
        });
        let first = {
            let mut handled = self.0.handled.lock();
            let times = handled.entry(order).or_default();
            times.push(generation);
            times.len() == 1
        };
        if first {
            let last = self.0.last_of_key.lock().insert(key, order);
            self.check(last.is_none_or(|last| last < order), || format!("{order} after {last:?}"));
        }
        self.0.at_work.fetch_add(1, Ordering::Relaxed);
        match fastrand::u32(..4) {
            0 => sleep(Duration::from_micros(fastrand::u64(..3000))).await,
            1 => tokio::task::yield_now().await,
            _ => {}
        }
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
        {
            let mut running = self.0.running.lock();
            if running.get(&key) == Some(&(generation as u32)) {
                running.remove(&key);
            }
        }
        if first {
            self.0.different.send_modify(|different| *different += 1);
        }
        Ok(())
    }

    fn check(&self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.0.wrong.lock().push(what());
        }
    }

    /// Waits until that many different orders were handled.
    pub async fn handled(&self, count: u32) -> Result<(), BoxError> {
        let mut different = self.0.different.subscribe();
        let enough = different.wait_for(|different| *different >= count);
        timeout(Duration::from_secs(240), enough)
            .await
            .map_err(|_| format!("only {} of {count} orders were handled", *self.0.different.borrow()))??;
        Ok(())
    }

    /// All orders `0..count` were handled, those of one key in order and one at a time.
    pub fn is_complete_and_in_order(&self, count: u32) {
        let handled = self.0.handled.lock();
        let missing: Vec<_> = (0..count).filter(|order| !handled.contains_key(order)).collect();
        assert!(missing.is_empty(), "lost: {missing:?}");
        let wrong = self.0.wrong.lock();
        assert!(wrong.is_empty(), "{} wrong, first {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    }

    /// The orders that were handled more than once.
    pub fn twice(&self) -> Vec<u32> {
        let handled = self.0.handled.lock();
        let mut twice: Vec<_> =
            handled.iter().filter(|(_, times)| times.len() > 1).map(|(order, _)| *order).collect();
        twice.sort_unstable();
        twice
    }
}
