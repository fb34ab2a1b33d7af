//! The promises of `RedisStore`, kept on a real server, between real processes.

#[path = "../support/mod.rs"]
mod support;

use std::{collections::BTreeMap, env, net::SocketAddr, process::Stdio, sync::Arc, time::Duration};

use parking_lot::Mutex;
use support::proxy::Proxy;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::{sleep, timeout},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_mq::{
    BoxError, DedupLayer, Drain, Event, Generation, Message, Origin, Outcome, PartitionLayer, SettleLayer,
    dedup::{Begun, Id, LeaseLost, RedisError, RedisOptions, RedisStore, Store, StoreDown, contract},
    handler, serve,
    source::memory,
    testing::{Gated, gate},
};

type Result<T = (), E = BoxError> = std::result::Result<T, E>;
type Stack = tower_mq::Dedup<Gated<Message>, RedisStore>;
type Answer = tokio::task::JoinHandle<Result<Outcome>>;

/// As short as a machine that has much else to do allows.
const LEASE: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(60);

fn url() -> String {
    env::var("TOWER_MQ_REDIS_URL")
        .expect("TOWER_MQ_REDIS_URL is not set: run `tests/run.sh redis`, which starts a server")
}

fn address() -> SocketAddr {
    let url = url();
    let host = url.split_once('@').expect("the URL has a password").1;
    host.split('/').next().expect("a split has a first part").parse().expect("an IP address")
}

fn password() -> String {
    let url = url();
    url.split_once('@').expect("the URL has a password").0.replace("redis://:", "")
}

/// The server as seen through a proxy.
fn url_at(proxy: &Proxy) -> String {
    url().replace(&address().to_string(), &proxy.address().to_string())
}

/// A part of the server that nobody else uses.
fn prefix() -> String {
    format!("test:{:016x}:", fastrand::u64(..))
}

fn options(prefix: &str) -> RedisOptions {
    RedisStore::options().prefix(prefix).lease(LEASE)
}

fn id(id: &str) -> Id {
    Id::of(id).within("orders")
}

/// A key of the server is asked for, or changed, past the store.
async fn redis(command: &str) -> Result<String> {
    let mut server = TcpStream::connect(address()).await?;
    server.write_all(format!("AUTH {}\r\n{command}\r\nQUIT\r\n", password()).as_bytes()).await?;
    let mut said = String::new();
    server.read_to_string(&mut said).await?;
    Ok(said.lines().nth(1).unwrap_or_default().to_owned())
}

/// Where messages come from, and what is reported of them.
#[derive(Clone)]
struct Orders {
    generation: Arc<Generation>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Orders {
    fn new() -> Self {
        let origin = Arc::new(Origin::new("orders", "test", 8, Default::default()));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let heard = failures.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            if let Event::StoreFailed { error } = event {
                assert!(!error.to_string().contains(&password()));
                heard.lock().push(error.to_string());
            }
        }));
        Self { generation: Generation::first(origin), failures }
    }

    fn message(&self, id: &str) -> Message {
        Message::builder("").id(id.to_owned()).generation(self.generation.clone()).build()
    }

    fn send(&self, stack: &mut Stack, id: &str) -> Answer {
        tokio::spawn(stack.call(self.message(id)))
    }

    fn failures(&self) -> Vec<String> {
        std::mem::take(&mut self.failures.lock())
    }
}

async fn within<F: Future>(future: F) -> Result<F::Output> {
    Ok(timeout(LIMIT, future).await?)
}

async fn outcome(answer: Answer) -> Result<Outcome> {
    within(answer).await??
}

#[tokio::test]
async fn the_store_keeps_the_contract() -> Result {
    contract::check(options(&prefix()).connect(&url()).await?).await;
    Ok(())
}

#[tokio::test]
async fn a_duplicate_in_another_replica_follows_whatever_becomes_of_the_first() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let mut stacks = Vec::new();
    for _ in 0..2 {
        let stack: Stack = DedupLayer::new(options(&prefix).connect(&url()).await?).layer(handler.clone());
        stacks.push(stack);
    }
    let [one, two] = &mut stacks[..] else { unreachable!() };

    // While it runs, and after it has succeeded.
    let first = orders.send(one, "a");
    let running = within(gate.next()).await?;
    let twin = orders.send(two, "a");
    sleep(Duration::from_millis(200)).await;
    assert!(!twin.is_finished() && gate.waiting() == 0);
    running.answer(Outcome::Ack);
    assert_eq!((outcome(first).await?, outcome(twin).await?), (Outcome::Ack, Outcome::Ack));
    assert_eq!(outcome(orders.send(two, "a")).await?, Outcome::Ack);
    assert_eq!(gate.waiting(), 0);

    // While it runs, and after it has failed.
    for failed in [Outcome::Release, Outcome::reject("no")] {
        let first = orders.send(one, failed.name());
        let running = within(gate.next()).await?;
        let twin = orders.send(two, failed.name());
        running.answer(failed.clone());
        assert_eq!(outcome(first).await?, failed);
        within(gate.next()).await?.answer(failed.clone());
        assert_eq!(outcome(twin).await?, failed);
        let later = orders.send(one, failed.name());
        within(gate.next()).await?.answer(Outcome::Ack);
        assert_eq!(outcome(later).await?, Outcome::Ack);
    }
    assert!(orders.failures().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_id_is_remembered_for_its_time() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let store = options(&prefix).ttl(Duration::from_secs(3600)).connect(&url()).await?;
    let mut stack: Stack = DedupLayer::new(store).layer(handler);
    let first = orders.send(&mut stack, "a");
    let running = within(gate.next()).await?;
    let key = format!("{prefix}{}", id("a"));
    let lease: u128 = redis(&format!("PTTL {key}")).await?.trim_start_matches(':').parse()?;
    assert!(lease <= LEASE.as_millis());
    running.answer(Outcome::Ack);
    outcome(first).await?;
    let ttl: u64 = redis(&format!("TTL {key}")).await?.trim_start_matches(':').parse()?;
    assert!((3500..=3600).contains(&ttl), "{ttl}");
    redis(&format!("DEL {key}")).await?;
    let again = orders.send(&mut stack, "a");
    within(gate.next()).await?.answer(Outcome::Ack);
    assert_eq!(outcome(again).await?, Outcome::Ack);
    Ok(())
}

/// Another process that handles messages: this test binary again.
struct Other {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Other {
    /// It begins with the message, and holds it.
    async fn begin(prefix: &str, id: &str) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .env("TOWER_MQ_OTHER", format!("{prefix} {id}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut this = Self { child, lines };
        this.says("runs").await?;
        Ok(this)
    }

    async fn says(&mut self, what: &str) -> Result {
        while let Some(line) = within(self.lines.next_line()).await?? {
            if line.ends_with(what) {
                return Ok(());
            }
        }
        Err(format!("it never said `{what}`").into())
    }

    /// The handler ends.
    async fn end(&mut self, with: &str) -> Result {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        input.write_all(format!("{with}\n").as_bytes()).await?;
        input.flush().await?;
        self.says("over").await
    }
}

#[tokio::test]
#[ignore = "the other process of other tests"]
async fn the_other_process() -> Result {
    let Ok(what) = env::var("TOWER_MQ_OTHER") else { return Ok(()) };
    let (prefix, id) = what.split_once(' ').ok_or("a prefix and an id")?;
    let store = options(prefix).connect(&url()).await?;
    let service = tower::service_fn(|_: Message| async {
        println!("\nruns");
        let mut line = String::new();
        BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
        match line.trim() {
            "ack" => Ok::<_, BoxError>(Outcome::Ack),
            _ => Err("as it was told".into()),
        }
    });
    let mut stack = DedupLayer::new(store).layer(service);
    let answer = stack.ready().await?.call(Orders::new().message(id)).await;
    println!("\n{answer:?}\nover");
    Ok(())
}

#[tokio::test]
async fn two_processes_handle_a_message_once() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let mut stack: Stack = DedupLayer::new(options(&prefix).connect(&url()).await?).layer(handler);
    let mut other = Other::begin(&prefix, "a").await?;
    let twin = orders.send(&mut stack, "a");
    sleep(Duration::from_millis(200)).await;
    assert!(!twin.is_finished() && gate.waiting() == 0);
    other.end("ack").await?;
    assert_eq!((outcome(twin).await?, gate.waiting()), (Outcome::Ack, 0));

    let mut other = Other::begin(&prefix, "b").await?;
    let twin = orders.send(&mut stack, "b");
    other.end("fail").await?;
    within(gate.next()).await?.answer(Outcome::Ack);
    assert_eq!(outcome(twin).await?, Outcome::Ack);
    Ok(())
}

#[tokio::test]
async fn a_process_that_is_killed_holds_up_an_id_for_no_longer_than_its_lease() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let store = options(&prefix).connect(&url()).await?;
    let mut stack: Stack = DedupLayer::new(store.clone()).layer(handler);
    let mut other = Other::begin(&prefix, "a").await?;
    let twin = orders.send(&mut stack, "a");
    assert!(matches!(store.begin(id("a")).await?, Begun::Running));
    other.child.kill().await?;
    let left: u128 = redis(&format!("PTTL {prefix}{}", id("a"))).await?.trim_start_matches(':').parse()?;
    assert!(left <= LEASE.as_millis());
    within(gate.next()).await?.answer(Outcome::Ack);
    assert_eq!(outcome(twin).await?, Outcome::Ack);
    Ok(())
}

#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_the_handler_runs() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let store = options(&prefix).connect(&url()).await?;
    let mut stack: Stack = DedupLayer::new(store).layer(handler);
    let first = orders.send(&mut stack, "a");
    let running = within(gate.next()).await?;
    // Each renewal takes a third of the lease, so the first one is long over after four.
    let key = format!("PTTL {prefix}{}", id("a"));
    let (mut last, mut renewals) = (i64::MAX, 0);
    within(async {
        while renewals < 4 {
            let left: i64 = redis(&key).await?.trim_start_matches(':').parse()?;
            renewals += i32::from(left > last);
            last = left;
            sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, BoxError>(())
    })
    .await??;
    let other = options(&prefix).connect(&url()).await?;
    assert!(matches!(other.begin(id("a")).await?, Begun::Running));
    running.answer(Outcome::Ack);
    assert_eq!(outcome(first).await?, Outcome::Ack);
    assert!(matches!(other.begin(id("a")).await?, Begun::Done));
    assert!(orders.failures().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_lease_that_somebody_else_took_is_reported_and_left_to_him() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let mut stack: Stack = DedupLayer::new(options(&prefix).connect(&url()).await?).layer(handler);
    let first = orders.send(&mut stack, "a");
    let running = within(gate.next()).await?;
    let key = format!("{prefix}{}", id("a"));
    redis(&format!("SET {key} somebody PX 60000")).await?;
    running.answer(Outcome::Ack);
    assert_eq!(outcome(first).await?, Outcome::Ack);
    assert_eq!(orders.failures(), [LeaseLost::new().to_string()]);
    assert_eq!(redis(&format!("STRLEN {key}")).await?, ":8", "it still is somebody's");

    // Nor does who fails forget what is not his.
    redis(&format!("DEL {key}")).await?;
    let first = orders.send(&mut stack, "a");
    let running = within(gate.next()).await?;
    redis(&format!("SET {key} somebody PX 60000")).await?;
    running.answer(Outcome::Release);
    assert_eq!(outcome(first).await?, Outcome::Release);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(redis(&format!("STRLEN {key}")).await?, ":8");
    Ok(())
}

#[tokio::test]
async fn without_a_connection_messages_are_handled_or_wait_as_was_decided() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let proxy = Proxy::start(address())?;
    let layer = DedupLayer::new(options(&prefix).connect(&url_at(&proxy)).await?);
    let mut opens: Stack = layer.clone().on_store_error(StoreDown::Handle).layer(handler.clone());
    let mut closes: Stack = layer.layer(handler);
    proxy.refuse().await;
    proxy.cut();
    let waits = orders.send(&mut closes, "waits");
    for _ in 0..2 {
        let handled = orders.send(&mut opens, "a");
        within(gate.next()).await?.answer(Outcome::Ack);
        assert_eq!(outcome(handled).await?, Outcome::Ack);
    }
    let failures = orders.failures();
    assert!(failures.len() > 2, "{failures:?}");
    assert!(failures.iter().all(|failure| failure.contains(&proxy.address().to_string())), "{failures:?}");
    assert!(!waits.is_finished() && gate.waiting() == 0);
    proxy.heal()?;
    let running = within(gate.next()).await?;
    assert_eq!(running.request().id().as_deref(), Some("waits"));
    running.answer(Outcome::Ack);
    assert_eq!(outcome(waits).await?, Outcome::Ack);
    assert_eq!(outcome(orders.send(&mut opens, "waits")).await?, Outcome::Ack);
    assert_eq!(gate.waiting(), 0);
    Ok(())
}

#[tokio::test]
async fn a_message_that_waits_for_the_store_is_released_by_a_drain() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let proxy = Proxy::start(address())?;
    let mut stack: Stack = DedupLayer::new(options(&prefix).connect(&url_at(&proxy)).await?).layer(handler);
    proxy.refuse().await;
    proxy.cut();
    let waits = orders.send(&mut stack, "a");
    within(async {
        while orders.failures().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await?;
    orders.generation.origin().start_drain(Drain::Finish);
    assert_eq!((outcome(waits).await?, gate.waiting()), (Outcome::Release, 0));
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_in_time_and_found_again() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let proxy = Proxy::start(address())?;
    let options = options(&prefix).timeout(Duration::from_millis(500));
    let layer = DedupLayer::new(options.connect(&url_at(&proxy)).await?);
    let mut stack: Stack = layer.on_store_error(StoreDown::Handle).layer(handler);
    proxy.black_hole();
    for number in 0..40 {
        let handled = orders.send(&mut stack, &number.to_string());
        within(gate.next()).await?.answer(Outcome::Ack);
        assert_eq!(outcome(handled).await?, Outcome::Ack);
    }
    let failures = orders.failures();
    let slow = failures.iter().filter(|failure| failure.contains("within 500ms")).count();
    assert_eq!(failures.len(), 40);
    assert!((1..20).contains(&slow), "not each of them pays for it: {failures:?}");
    proxy.heal()?;
    // The old connection is dead for ever. Sooner or later one finds the new one.
    within(async {
        loop {
            let handled = orders.send(&mut stack, "last");
            tokio::select! {
                call = gate.next() => call.answer(Outcome::Ack),
                () = sleep(LIMIT) => {}
            }
            outcome(handled).await?;
            if orders.failures().is_empty() {
                return Ok::<_, BoxError>(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await??;
    assert_eq!((outcome(orders.send(&mut stack, "last")).await?, gate.waiting()), (Outcome::Ack, 0));
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_lost_before_the_end_changes_no_outcome_and_the_lease_ends() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let proxy = Proxy::start(address())?;
    let mut stack: Stack =
        DedupLayer::new(options(&prefix).connect(&url_at(&proxy)).await?).layer(handler.clone());
    let mut other: Stack = DedupLayer::new(options(&prefix).connect(&url()).await?).layer(handler);
    let first = orders.send(&mut stack, "a");
    let running = within(gate.next()).await?;
    proxy.refuse().await;
    proxy.cut();
    running.answer(Outcome::Ack);
    assert_eq!(outcome(first).await?, Outcome::Ack);
    assert_eq!(orders.failures().len(), 1);
    // Nobody knows that it was handled: it is, once more, when the lease has ended.
    let again = orders.send(&mut other, "a");
    within(gate.next()).await?.answer(Outcome::Ack);
    assert_eq!(outcome(again).await?, Outcome::Ack);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_is_lost_while_idle_is_no_trouble() -> Result {
    let (orders, prefix, (handler, gate)) = (Orders::new(), prefix(), gate());
    let proxy = Proxy::start(address())?;
    let mut stack: Stack = DedupLayer::new(options(&prefix).connect(&url_at(&proxy)).await?).layer(handler);
    for number in 0..10 {
        proxy.cut();
        let handled = orders.send(&mut stack, &number.to_string());
        within(gate.next()).await?.answer(Outcome::Ack);
        assert_eq!(outcome(handled).await?, Outcome::Ack);
        proxy.cut();
        assert_eq!(outcome(orders.send(&mut stack, &number.to_string())).await?, Outcome::Ack);
    }
    assert!(orders.failures().is_empty());
    Ok(())
}

#[tokio::test]
async fn errors_tell_what_is_wrong_and_never_the_password() -> Result {
    let of = |url: String| async move {
        let error = RedisStore::connect(&url).await.expect_err("it cannot connect");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("secret") && !said.contains(&password()), "{said}");
        error
    };
    let wrong = of(url().replace(&password(), "secret-of-others")).await;
    assert!(matches!(wrong, RedisError::Connect { .. }));
    assert!(wrong.to_string().contains(&address().to_string()), "{wrong}");
    let none = of(url().replace(&format!(":{}@", password()), "")).await;
    assert!(none.to_string().contains(&address().to_string()), "{none}");
    let nobody = of("redis://:secret@127.0.0.1:1/0".to_owned()).await;
    assert!(nobody.to_string().contains("127.0.0.1:1"), "{nobody}");
    for url in ["secret", "http://:secret@localhost", "redis://:secret@:port", ""] {
        assert!(matches!(of(url.to_owned()).await, RedisError::Url), "{url}");
    }
    let proxy = Proxy::start(address())?;
    proxy.black_hole();
    let silent = of(url_at(&proxy)).await;
    assert!(silent.to_string().contains(&proxy.address().to_string()), "{silent}");

    let layer = DedupLayer::new(RedisStore::connect(&url()).await?);
    let said = format!("{layer:?}");
    assert!(said.contains(&address().to_string()) && !said.contains(&password()), "{said}");

    let short = RedisStore::options().lease(Duration::from_secs(3)).connect(&url()).await;
    let said = short.expect_err("they do not fit").to_string();
    assert!(said.contains("`lease`") && said.contains("`timeout`"), "{said}");
    RedisStore::options().ttl(Duration::ZERO).connect(&url()).await.expect_err("nothing is kept");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_handle_each_of_many_messages_once() -> Result {
    const MESSAGES: usize = 300;
    let (prefix, broker) = (prefix(), memory::Broker::new());
    let mut numbers: Vec<_> = (0..MESSAGES).chain(0..MESSAGES).collect();
    fastrand::shuffle(&mut numbers);
    for number in numbers {
        let key = format!("key-{}", number % 16);
        broker.publish(
            "orders",
            Message::builder(number.to_string()).id(number.to_string()).key(key).build(),
        )?;
    }
    let handled = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let notes = handled.clone();
        let stack = ServiceBuilder::new()
            .layer(PartitionLayer::by_key(8))
            .layer(SettleLayer::new())
            .layer(DedupLayer::new(options(&prefix).connect(&url()).await?))
            .service(handler(move |order: String| {
                *notes.lock().entry(order).or_default() += 1;
                async {
                    sleep(Duration::from_millis(2)).await;
                    Ok::<_, BoxError>(())
                }
            }));
        let orders = broker.queue("orders").window(16).consume();
        let drained = broker.drained("orders");
        replicas
            .push(tokio::spawn(async move { serve(orders, stack).with_graceful_shutdown(drained).await }));
    }
    let mut acked = 0;
    for replica in replicas {
        acked += within(replica).await???.counts.acked;
    }
    assert_eq!(acked as usize, 2 * MESSAGES);
    let handled = handled.lock();
    assert_eq!((handled.len(), handled.values().max()), (MESSAGES, Some(&1)));
    Ok(())
}
