//! Dead letters on RabbitMQ: a message is in its queue until a copy of it is confirmed, whatever becomes of the
//! target, the connection to it, and the broker.

#[path = "../support/node.rs"]
mod node;
#[path = "../support/proxy.rs"]
#[allow(dead_code, unreachable_pub)]
mod proxy;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use lapin::{
    BasicProperties,
    options::{BasicGetOptions, QueueDeclareOptions, QueuePurgeOptions},
    types::{AMQPValue, DecimalValue, FieldTable},
};
use node::{KINDS, TestQueue, is_full, order, script, text, url, url_at};
use parking_lot::Mutex;
use proxy::Proxy;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_mq::{
    BoxError, DeadLetterLayer, Delivery, Event, FailureExt, Message, NotStored, Origin, Outcome,
    PartitionLayer, Publication, SettleLayer, Settled,
    dead_letter::{
        DEAD_LETTER_ATTEMPTS, DEAD_LETTER_FIRST_FAILURE, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON,
        DEAD_LETTER_TRIES,
    },
    serve,
    source::{
        Reconnect, State,
        rabbitmq::{Deliveries, PublishError, Publisher, Publishing, Queue},
    },
};

type Result<T = (), E = BoxError> = std::result::Result<T, E>;

const PATIENCE: Duration = Duration::from_secs(60);

fn quick() -> Reconnect {
    Reconnect::new().backoff(Duration::from_millis(20), Duration::from_millis(500))
}

async fn next(source: &mut Deliveries) -> Result<Delivery> {
    Ok(timeout(PATIENCE, source.next()).await?.ok_or("the stream ended")?)
}

async fn publisher(address: SocketAddr) -> Result<Publisher> {
    let publishing = Publishing::new().reconnect(quick()).connect_timeout(Duration::from_secs(2));
    Ok(publishing.connect(&url_at(address)).await?)
}

fn layer(publisher: Publisher) -> DeadLetterLayer<Publisher> {
    DeadLetterLayer::new(publisher).backoff(Duration::from_millis(10), Duration::from_millis(200))
}

async fn refuse(_: Message) -> Result {
    Ok("many".parse::<u32>().map(drop).or_reject()?)
}

/// What becomes of a delivery whose handler rejects it.
async fn rejected(layer: DeadLetterLayer<Publisher>, delivery: Delivery) -> Result<Settled> {
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).layer(layer).service_fn(refuse);
    timeout(PATIENCE, stack.oneshot(delivery)).await?
}

/// Everything between client and broker, and the answers of the broker for as long as it is not muted.
struct Mute {
    address: SocketAddr,
    answers: watch::Sender<bool>,
    cuts: watch::Sender<u32>,
}

impl Mute {
    async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (answers, cuts) = (watch::Sender::new(true), watch::Sender::new(0));
        let (heard, cut) = (answers.clone(), cuts.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut heard, mut cut) = (heard.subscribe(), cut.subscribe());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    let asks = tokio::io::copy(&mut from_client, &mut to_server);
                    let answers = async {
                        let mut buffer = vec![0; 4096];
                        loop {
                            use tokio::io::{AsyncReadExt, AsyncWriteExt};
                            let read = from_server.read(&mut buffer).await?;
                            heard.wait_for(|heard| *heard).await.map_err(std::io::Error::other)?;
                            if read == 0 {
                                return Ok::<_, std::io::Error>(());
                            }
                            to_client.write_all(&buffer[..read]).await?;
                        }
                    };
                    tokio::select! {
                        biased;
                        // Before what was held back can go through.
                        _ = cut.changed() => {}
                        _ = asks => {}
                        _ = answers => {}
                    }
                });
            }
        });
        Ok(Self { address, answers, cuts })
    }

    /// What the broker answers from now on is held back. It hears the client.
    fn mute(&self) {
        self.answers.send_replace(false);
    }

    /// Loses the connections, with the answers that were held back. New ones are as they should be.
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
        self.answers.send_replace(true);
    }
}

/// The numbers of all orders in a queue, with how often each is there.
async fn copies(queue: &TestQueue) -> Result<HashMap<u32, u32>> {
    let ready = queue.ready().await?;
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    let mut copies = HashMap::new();
    for _ in 0..ready {
        let delivery = next(&mut source).await?;
        *copies.entry(order(delivery.message())).or_default() += 1;
        delivery.settle(Outcome::Ack).await?;
    }
    Ok(copies)
}

/// One of each type that RabbitMQ hands through.
fn headers() -> FieldTable {
    let mut table = FieldTable::default();
    table.insert("n".into(), AMQPValue::ShortInt(-7));
    let values = [
        ("void", AMQPValue::Void),
        ("bool", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-1)),
        ("i16", AMQPValue::ShortInt(-2)),
        ("i32", AMQPValue::LongInt(-3)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("f32", AMQPValue::Float(0.5)),
        ("f64", AMQPValue::Double(0.25)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 1234 })),
        ("text", text("blue")),
        ("raw", AMQPValue::LongString(vec![0xff, 0].into())),
        ("bytes", AMQPValue::ByteArray(vec![0xff, 0].into())),
        ("time", AMQPValue::Timestamp(1_700_000_000)),
        ("list", AMQPValue::FieldArray(vec![AMQPValue::Boolean(false), AMQPValue::Void].into())),
        ("table", AMQPValue::FieldTable(table)),
        ("amqp-partition-key", AMQPValue::LongInt(42)),
    ];
    let mut headers = FieldTable::default();
    for (name, value) in values {
        headers.insert(name.into(), value);
    }
    headers
}

#[tokio::test]
async fn a_copy_is_the_message_byte_by_byte_and_type_by_type() -> Result {
    for kind in KINDS {
        let (queue, dead) =
            (TestQueue::declare("orders", kind, &[]).await?, TestQueue::declare("dead", kind, &[]).await?);
        let sent = BasicProperties::default()
            .with_headers(headers())
            .with_content_type("application/x-order".into())
            .with_content_encoding("zstd".into())
            .with_correlation_id("6".into())
            .with_message_id("7".into())
            .with_reply_to("answers".into())
            .with_timestamp(1_700_000_001)
            .with_type("order".into())
            .with_app_id("shop".into())
            .with_priority(3);
        let payload = [0, 0xff, b'x', 0];
        queue.publish(&payload, sent.clone()).await?;
        let mut source = Queue::new(&queue.name).connect(&url()).await?;
        let publisher = publisher(node::address()).await?;
        let settled = rejected(layer(publisher.to(dead.name.clone())), next(&mut source).await?).await?;
        assert_eq!(settled.outcome, Outcome::Ack);
        dead.becomes_ready(1).await?;

        let got = dead.channel.basic_get(dead.name.as_str().into(), BasicGetOptions { no_ack: true }).await?;
        let got = got.ok_or("it is ready")?;
        assert_eq!(got.data, payload);
        let mut added = got.properties.headers().clone().ok_or("it has headers")?.inner().clone();
        for (name, value) in &headers() {
            assert_eq!(added.remove(name.as_str()).as_ref(), Some(value), "{kind}: {name}");
        }
        added.remove("x-delivery-count");
        let mut names: Vec<_> = added.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                DEAD_LETTER_ATTEMPTS,
                DEAD_LETTER_FIRST_FAILURE,
                DEAD_LETTER_QUEUE,
                DEAD_LETTER_REASON,
                DEAD_LETTER_TRIES
            ]
        );
        assert_eq!(added.get(DEAD_LETTER_REASON), Some(&text("invalid digit found in string")));
        assert_eq!(added.get(DEAD_LETTER_QUEUE), Some(&text(&queue.name)));
        assert_eq!(added.get(DEAD_LETTER_ATTEMPTS), Some(&AMQPValue::LongUInt(1)));
        assert!(matches!(added.get(DEAD_LETTER_FIRST_FAILURE), Some(AMQPValue::Timestamp(_))));
        // The same but for the headers, and persistent.
        let as_sent = got.properties.clone().with_headers(headers());
        assert_eq!(as_sent, sent.with_delivery_mode(2), "{kind}");
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_target_stores_nothing_and_the_message_stays_until_it_is_there() -> Result {
    let queue = TestQueue::declare("orders", "quorum", &[]).await?;
    queue.publish_orders(1, 1).await?;
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    let (publisher, target) =
        (publisher(node::address()).await?, format!("missing-{:08x}", fastrand::u32(..)));
    let missing = layer(publisher.to(target.clone())).attempts(3);
    for _ in 0..2 {
        let settled = rejected(missing.clone(), next(&mut source).await?).await?;
        assert_eq!(settled.outcome, Outcome::Release);
    }
    let delivery = next(&mut source).await?;
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let dead = queue.channel.queue_declare(target.as_str().into(), options, FieldTable::default()).await?;
    assert_eq!(dead.message_count(), 0);
    assert_eq!(rejected(missing, delivery).await?.outcome, Outcome::Ack);
    let got = queue.channel.basic_get(target.as_str().into(), BasicGetOptions { no_ack: true }).await?;
    assert_eq!(got.ok_or("it was copied")?.message_count, 0, "there is one");
    Ok(())
}

#[tokio::test]
async fn a_full_target_stores_nothing_and_the_message_stays_until_there_is_room() -> Result {
    let queue = TestQueue::declare("orders", "classic", &[]).await?;
    queue.publish_orders(1, 1).await?;
    let limits = [("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", text("reject-publish"))];
    let dead = TestQueue::declare("full", "classic", &limits).await?;
    let publisher = publisher(node::address()).await?.to(dead.name.clone());
    let mut filling = publisher.clone();
    let error = loop {
        if let Err(error) = filling.ready().await?.call(Publication::new(Message::new("x"))).await {
            break error;
        }
    };
    assert!(matches!(error, PublishError::Refused { .. }) && NotStored::is_in(&error), "{error}");
    let before = dead.ready().await?;

    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    let full = layer(publisher).attempts(3);
    assert_eq!(rejected(full.clone(), next(&mut source).await?).await?.outcome, Outcome::Release);
    assert_eq!(dead.ready().await?, before);
    // The tries go on until there is room.
    let patient = full.attempts(u32::MAX);
    let rejecting = tokio::spawn(rejected(patient, next(&mut source).await?));
    sleep(Duration::from_millis(100)).await;
    assert!(!rejecting.is_finished());
    dead.channel.queue_purge(dead.name.as_str().into(), QueuePurgeOptions::default()).await?;
    assert_eq!(rejecting.await??.outcome, Outcome::Ack);
    assert_eq!(dead.ready().await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_is_lost_before_the_confirmation_costs_one_duplicate() -> Result {
    let (queue, dead) = (
        TestQueue::declare("orders", "classic", &[]).await?,
        TestQueue::declare("dead", "classic", &[]).await?,
    );
    queue.publish_orders(1, 1).await?;
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    let mute = Mute::start(node::address()).await?;
    let layer = layer(publisher(mute.address).await?.to(dead.name.clone()));

    // The copy is stored, and only the confirmation is lost: nobody can know.
    mute.mute();
    let rejecting = tokio::spawn(rejected(layer, next(&mut source).await?));
    dead.becomes_ready(1).await?;
    assert!(!rejecting.is_finished());
    mute.cut();
    assert_eq!(rejecting.await??.outcome, Outcome::Ack);
    dead.becomes_ready(2).await?;
    assert_eq!(copies(&dead).await?, HashMap::from([(0, 2)]));

    drop(source);
    queue.becomes_ready(0).await
}

#[tokio::test]
async fn a_confirmation_that_is_lost_twice_ends_with_a_release_and_no_third_copy() -> Result {
    let (queue, dead) = (
        TestQueue::declare("orders", "classic", &[]).await?,
        TestQueue::declare("dead", "classic", &[]).await?,
    );
    queue.publish_orders(1, 1).await?;
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    // Nobody answers, and nobody cuts: the time of each try is over.
    let mute = Mute::start(node::address()).await?;
    let publisher =
        Publishing::new().heartbeat(Duration::from_secs(60)).connect(&url_at(mute.address)).await?;
    let impatient = layer(publisher.to(dead.name.clone())).timeout(Duration::from_millis(500));
    mute.mute();
    assert_eq!(rejected(impatient.clone(), next(&mut source).await?).await?.outcome, Outcome::Release);
    dead.becomes_ready(2).await?;
    // It is there, and with the broker's answers all is well.
    let delivery = next(&mut source).await?;
    assert!(delivery.message().redelivered());
    mute.answers.send_replace(true);
    assert_eq!(rejected(impatient, delivery).await?.outcome, Outcome::Ack);
    assert_eq!(copies(&dead).await?, HashMap::from([(0, 3)]));
    Ok(())
}

#[tokio::test]
async fn a_black_hole_before_the_confirmation_loses_nothing() -> Result {
    let (queue, dead) = (
        TestQueue::declare("orders", "quorum", &[]).await?,
        TestQueue::declare("dead", "quorum", &[]).await?,
    );
    queue.publish_orders(1, 1).await?;
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    let proxy = Proxy::start(node::address())?;
    let publishing = Publishing::new().reconnect(quick()).connect_timeout(Duration::from_secs(2));
    let publisher = publishing.heartbeat(Duration::from_secs(1)).connect(&url_at(proxy.address())).await?;
    let layer = layer(publisher.to(dead.name.clone()));
    proxy.black_hole();
    let rejecting = tokio::spawn(rejected(layer, next(&mut source).await?));
    timeout(PATIENCE, async {
        while matches!(publisher.health().state, State::Connected { .. }) {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await?;
    assert!(!rejecting.is_finished() && dead.ready().await? == 0, "there is no copy, and it is not acked");
    proxy.heal()?;
    assert_eq!(rejecting.await??.outcome, Outcome::Ack);
    // A second one, where the machine is too busy for a heartbeat of a second.
    assert!(matches!(copies(&dead).await?[&0], 1 | 2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_before_the_confirmation_leaves_one_copy_or_two() -> Result {
    let (queue, dead) = (
        TestQueue::declare("orders", "classic", &[]).await?,
        TestQueue::declare("dead", "classic", &[]).await?,
    );
    queue.publish_orders(1, 1).await?;
    let mute = Mute::start(node::address()).await?;
    let source = Queue::new(&queue.name).reconnect(quick()).connect(&url()).await?;
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(layer(publisher(mute.address).await?.to(dead.name.clone())))
        .service_fn(refuse);
    mute.mute();
    let copied = Arc::new(watch::Sender::new(false));
    let (heard, mut done) = (copied.clone(), copied.subscribe());
    let serving = serve(source, stack)
        .observer(move |_: &Origin, event: &Event<'_>| {
            if let Event::DeadLettered { .. } = event {
                heard.send_replace(true);
            }
        })
        .with_graceful_shutdown(async move {
            let _ = done.wait_for(|done| *done).await;
        });
    let serving = tokio::spawn(serving);
    dead.becomes_ready(1).await?;
    assert!(!*copied.borrow());
    // Quorum queues are left out: with one member they do not always come up again (RabbitMQ 3.10).
    script("kill").await;
    mute.cut();
    script("start").await;
    let report = timeout(PATIENCE, serving).await???;
    assert_eq!(report.counts.acked, 1, "{report}");
    // The first copy was stored, or the broker died before it was on disk.
    let copies = copies(&dead).await?;
    assert!(matches!(copies[&0], 1 | 2), "{copies:?}");
    queue.becomes_ready(0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_cut_all_rejects_are_copied_and_few_of_them_twice() -> Result {
    let (count, cuts) = if is_full() { (5_000, 12) } else { (600, 4) };
    let (queue, dead) = (
        TestQueue::declare("orders", "quorum", &[]).await?,
        TestQueue::declare("dead", "classic", &[]).await?,
    );
    queue.publish_orders(count, 97).await?;
    let proxy = Arc::new(Proxy::start(node::address())?);
    let source = Queue::new(&queue.name).prefetch(64).reconnect(quick()).connect(&url()).await?;
    let (copied, released) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(0)));
    let (heard, given_up, cutting) = (copied.clone(), released.clone(), proxy.clone());
    let all = watch::Sender::new(false);
    let mut done = all.subscribe();
    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(layer(publisher(proxy.address()).await?.to(dead.name.clone())))
        .service_fn(refuse);
    let serving = serve(source, stack)
        .observer(move |_: &Origin, event: &Event<'_>| match event {
            Event::DeadLettered { .. } => {
                let copied = heard.fetch_add(1, Ordering::Relaxed) + 1;
                if copied % (count / (cuts + 1)) == 0 && copied < count {
                    cutting.cut();
                }
                if copied == count {
                    all.send_replace(true);
                }
            }
            Event::NotDeadLettered { given_up: true, .. } => *given_up.lock() += 1,
            _ => {}
        })
        .with_graceful_shutdown(async move {
            let _ = done.wait_for(|done| *done).await;
        });
    let report = timeout(2 * PATIENCE, serving).await??;
    queue.becomes_ready(0).await?;
    let copies = copies(&dead).await?;
    let missing: Vec<_> = (0..count).filter(|order| !copies.contains_key(order)).collect();
    assert!(missing.is_empty(), "lost: {missing:?}");
    let twice = copies.values().filter(|times| **times > 1).count();
    println!("{report}; {twice} of {count} twice, {} released", released.lock());
    // A cut hits what eight lanes publish at that time.
    let (most, extra) = (8 * cuts, copies.values().sum::<u32>() - count);
    assert!(extra <= most, "{extra} copies too many after {cuts} cuts");
    assert!(copies.values().all(|times| *times <= 2) || *released.lock() > 0, "{copies:?}");
    Ok(())
}
