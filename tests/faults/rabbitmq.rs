//! What is left of the promises of `source::rabbitmq` when broker and network fail.

#[path = "../support/node.rs"]
mod node;
#[path = "../support/proxy.rs"]
#[allow(dead_code, unreachable_pub)]
mod proxy;
#[path = "../support/tap.rs"]
mod tap;

use std::{collections::BTreeSet, future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use lapin::options::QueueDeleteOptions;
use node::{KINDS, Record, TestQueue, is_full, order, script, url, url_at};
use parking_lot::Mutex;
use proxy::Proxy;
use tap::Tap;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_mq::{
    BoxError, Delivery, Drain, Message, Outcome, PartitionLayer, Publication, SettleLayer, Settlement, serve,
    source::{
        Handle, Health, Reconnect, Source, SourceErrorKind, State,
        rabbitmq::{Deliveries, PublishError, Publishing, Queue},
    },
};

type Result<T = (), E = BoxError> = std::result::Result<T, E>;

const WINDOW: u16 = 256;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Cut,
    BlackHole,
}

fn quick() -> Reconnect {
    Reconnect::new().backoff(Duration::from_millis(20), Duration::from_millis(500))
}

async fn next(source: &mut Deliveries) -> Result<Delivery> {
    Ok(timeout(PATIENCE, source.next()).await?.ok_or("the stream ended")?)
}

async fn closed(source: &mut Deliveries) -> Result {
    Ok(timeout(PATIENCE, poll_fn(|cx| Pin::new(&mut *source).poll_closed(cx))).await??)
}

async fn becomes(handle: &Handle, wanted: impl FnMut(&Health) -> bool) -> Result {
    timeout(PATIENCE, handle.watch().wait_for(wanted)).await??;
    Ok(())
}

fn is_connected(generation: u64) -> impl FnMut(&Health) -> bool {
    move |health| matches!(health.state, State::Connected { generation: now, .. } if now >= generation)
}

fn is_reconnecting(health: &Health) -> bool {
    matches!(health.state, State::Reconnecting { .. })
}

/// A run of the whole stack, with something between it and the broker.
struct Run {
    queue: TestQueue,
    count: u32,
    tap: Tap,
    proxy: Arc<Proxy>,
    handle: Handle,
    record: Record,
    phases: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinHandle<Result<tower_mq::Report, tower_mq::ServeError>>,
    enough: watch::Sender<bool>,
}

impl Run {
    async fn start(queue: TestQueue, count: u32, keys: u32) -> Result<Self> {
        let tap = Tap::start(node::address()).await?;
        let proxy = Arc::new(Proxy::start(tap.address)?);
        let source = Queue::new(&queue.name)
            .prefetch(WINDOW)
            .heartbeat(Duration::from_secs(1))
            .connect_timeout(Duration::from_secs(2))
            .reconnect(quick())
            .connect(&url_at(proxy.address()))
            .await?;
        let handle = source.handle();
        let phases = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn({
            let (mut health, phases) = (handle.watch(), phases.clone());
            async move {
                while health.changed().await.is_ok() {
                    let phase = match &health.borrow_and_update().state {
                        State::Connecting => "connecting".to_owned(),
                        State::Connected { generation, .. } => format!("connected {generation}"),
                        State::Reconnecting { .. } => "reconnecting".to_owned(),
                        state => format!("{state:?}"),
                    };
                    let mut phases: parking_lot::MutexGuard<'_, Vec<String>> = phases.lock();
                    if phases.last() != Some(&phase) {
                        phases.push(phase);
                    }
                }
            }
        });
        let record = Record::new(keys);
        let handler = record.clone();
        let stack = ServiceBuilder::new()
            .layer(PartitionLayer::by_key(8))
            .layer(SettleLayer::new())
            .service_fn(move |message: Message| handler.clone().handle(message));
        let enough = watch::Sender::new(false);
        let mut stop = enough.subscribe();
        let serving = serve(source, stack).with_graceful_shutdown(async move {
            let _ = stop.wait_for(|stop| *stop).await;
        });
        let serving = tokio::spawn(serving);
        Ok(Self { queue, count, tap, proxy, handle, record, phases, serving, enough })
    }

    /// Ends it when all is handled and the queue is empty, and checks what is promised.
    async fn end(self, faults: &[Fault]) -> Result {
        let Self { queue, count, tap, proxy: _proxy, handle: _, record, phases, serving, enough } = self;
        record.handled(count).await?;
        // What comes again comes at once. If there is still something, it is seen in the end.
        let (patience, mut empty) = (Instant::now() + PATIENCE, 0);
        while empty < 3 {
            assert!(Instant::now() < patience, "{}: some are not handed out", queue.name);
            empty = if queue.ready().await? == 0 { empty + 1 } else { 0 };
            sleep(Duration::from_millis(200)).await;
        }
        enough.send_replace(true);
        let report = serving.await??;

        record.is_complete_and_in_order(count);
        // A classic queue keeps acks in memory for a while, so a crash undoes what it had already answered: see the docs
        // of the source. There the broker decides how many come twice.
        let forgets =
            queue.name.contains("classic") && faults.iter().any(|fault| matches!(fault, Fault::Kill));
        let twice: BTreeSet<u32> = record.twice().into_iter().collect();
        let (repeated, broken) = tap.lives(|lives| {
            let (mut before, mut proven) = (BTreeSet::new(), BTreeSet::new());
            let (mut repeated, mut broken) = (BTreeSet::new(), BTreeSet::new());
            for life in lives.iter().filter(|life| !life.delivered().is_empty()) {
                let delivered = life.delivered();
                broken.extend(delivered.intersection(&proven).copied());
                repeated.extend(delivered.intersection(&before).copied());
                before.extend(&delivered);
                proven.extend(life.proven(WINDOW.into()));
                let age = life.acked_before_the_end(&twice);
                println!("{} deliveries, {} frames of acks; the first to come twice was acked {age:?} before the last", delivered.len(), life.acks());
            }
            (repeated, broken)
        });
        println!(
            "{} {faults:?}: {} handled twice, {} of them proven; {report}",
            queue.name,
            twice.len(),
            broken.len()
        );
        assert!(twice.is_subset(&repeated), "the source repeats by itself: {twice:?}");
        if !forgets {
            assert!(twice.len() <= faults.len() * usize::from(WINDOW), "{} were handled twice", twice.len());
            assert!(broken.is_empty(), "{faults:?}: the broker had processed the acks of {broken:?}");
        }
        let phases = phases.lock().clone();
        let expected: Vec<String> = (1..=faults.len())
            .flat_map(|fault| ["reconnecting".to_owned(), format!("connected {}", fault + 1)])
            .collect();
        assert!(
            phases.iter().filter(|phase| *phase != "connected 1").take(expected.len()).eq(&expected),
            "{phases:?}"
        );
        assert_eq!(queue.ready().await?, 0);
        Ok(())
    }
}

/// A queue full of orders.
async fn orders(kind: &str) -> Result<TestQueue> {
    let (queue, (count, keys)) = (TestQueue::declare("faults", kind, &[]).await?, numbers());
    queue.publish_orders(count, keys).await?;
    Ok(queue)
}

fn numbers() -> (u32, u32) {
    if is_full() { (100_000, 1000) } else { (10_000, 1000) }
}

async fn survives(kind: &str, fault: Fault, times: u32) -> Result {
    let (count, keys) = numbers();
    let run = Run::start(orders(kind).await?, count, keys).await?;
    for time in 1..=times {
        run.record.handled(count * time / (times + 1)).await?;
        match fault {
            Fault::Cut => run.proxy.cut(),
            Fault::BlackHole => {
                run.proxy.black_hole();
                let since = Instant::now();
                becomes(&run.handle, is_reconnecting).await?;
                println!(
                    "{kind}: a black hole was noticed after {:?}, with a heartbeat of 1 s",
                    since.elapsed()
                );
                run.proxy.heal()?;
            }
            Fault::Kill => unreachable!("a killed node hits every run"),
        }
        becomes(&run.handle, is_connected(u64::from(time) + 1)).await?;
    }
    run.end(&vec![fault; times as usize]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_loses_nothing_and_repeats_only_what_was_not_proven() -> Result {
    let times = if is_full() { 3 } else { 1 };
    tokio::try_join!(survives(KINDS[0], Fault::Cut, times), survives(KINDS[1], Fault::Cut, times))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_is_noticed_and_loses_nothing() -> Result {
    tokio::try_join!(survives(KINDS[0], Fault::BlackHole, 1), survives(KINDS[1], Fault::BlackHole, 1))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_nothing_and_source_and_publisher_come_back() -> Result {
    let ((count, keys), times) = (numbers(), if is_full() { 3 } else { 1 });
    let (classic, quorum) = tokio::try_join!(orders(KINDS[0]), orders(KINDS[1]))?;

    // Meanwhile somebody publishes.
    let published = TestQueue::declare("published", "classic", &[]).await?;
    let publisher = Publishing::new().reconnect(quick()).connect(&url()).await?;
    let stop = watch::Sender::new(false);
    let publishing = tokio::spawn({
        let (mut publisher, stop) = (publisher.to(published.name.clone()), stop.subscribe());
        async move {
            let (mut stored, mut lost) = (Vec::new(), 0);
            for number in 0u32.. {
                if *stop.borrow() {
                    break;
                }
                let message = Message::builder(number.to_be_bytes().to_vec()).build();
                match publisher.ready().await?.call(Publication::new(message)).await {
                    Ok(_) => stored.push(number),
                    Err(PublishError::Lost { .. }) => lost += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok((stored, lost))
        }
    });

    let runs = [Run::start(classic, count, keys).await?, Run::start(quorum, count, keys).await?];
    for time in 1..=times {
        // One of them is faster, and must not be done before the broker dies.
        let progress = count * time / (times + 3);
        tokio::select! {
            handled = runs[0].record.handled(progress) => handled?,
            handled = runs[1].record.handled(progress) => handled?,
        }
        script("kill").await;
        for run in &runs {
            becomes(&run.handle, is_reconnecting).await?;
            run.proxy.refuse().await;
        }
        script("start").await;
        node::quorum_is_up(&runs[1].queue.name).await;
        for run in &runs {
            run.proxy.heal()?;
        }
        for run in &runs {
            becomes(&run.handle, is_connected(u64::from(time) + 1)).await?;
        }
    }
    let faults = vec![Fault::Kill; times as usize];
    let [classic, quorum] = runs;
    classic.end(&faults).await?;
    quorum.end(&faults).await?;

    stop.send_replace(true);
    let (stored, lost) = publishing.await??;
    println!("published and confirmed {}, not confirmed {lost}", stored.len());
    assert!(lost <= times, "one at a time was under way, and {lost} were lost");
    let mut source = Queue::new(&published.name).connect(&url()).await?;
    let (mut there, last) = (BTreeSet::new(), stored.last().copied().ok_or("nothing was published")?);
    while !there.contains(&last) {
        let delivery = next(&mut source).await?;
        there.insert(order(delivery.message()));
        delivery.settle(Outcome::Ack).await?;
    }
    assert!(stored.iter().all(|number| there.contains(number)), "a confirmed message is not there");
    Ok(())
}

#[tokio::test]
async fn what_is_decided_after_the_connection_ended_is_stale() -> Result {
    let queue = TestQueue::declare("stale", "classic", &[]).await?;
    queue.publish_orders(3, 1).await?;
    let proxy = Proxy::start(node::address())?;
    let mut source = Queue::new(&queue.name).reconnect(quick()).connect(&url_at(proxy.address())).await?;
    let running = next(&mut source).await?;
    next(&mut source).await?.settle(Outcome::Retry { after: Duration::from_millis(500) }).await?;
    proxy.cut();
    becomes(&source.handle(), is_connected(2)).await?;
    assert!(running.message().is_stale());
    assert_eq!(running.settle(Outcome::Ack).await?, Settlement::Stale);
    // What waited here, and what was held for its retry, belongs to the broker again: each comes once.
    let mut again = Vec::new();
    for _ in 0..3 {
        let delivery = next(&mut source).await?;
        assert_eq!(delivery.message().generation().number(), 2);
        again.push(order(delivery.message()));
        delivery.settle(Outcome::Ack).await?;
    }
    assert_eq!(again, [0, 1, 2]);
    assert!(timeout(Duration::from_secs(1), source.next()).await.is_err(), "one came twice");
    Ok(())
}

#[tokio::test]
async fn a_handler_that_outlasts_the_patience_of_the_broker_costs_the_connection_and_nothing_more() -> Result
{
    // In milliseconds. Its patience is that of channels that are opened from now on.
    let set = async |name, value: u32| {
        node::ctl(&["eval", &format!("application:set_env(rabbit, {name}, {value}).")]).await;
    };
    set("channel_tick_interval", 100).await;
    for kind in KINDS {
        let queue = TestQueue::declare("outlasts", kind, &[]).await?;
        set("consumer_timeout", 2_000).await;
        let mut source = Queue::new(&queue.name).reconnect(quick()).connect(&url()).await?;
        set("consumer_timeout", 1_800_000).await;
        queue.publish_orders(3, 3).await?;
        let endless = next(&mut source).await?;
        next(&mut source).await?.settle(Outcome::Ack).await?;
        becomes(&source.handle(), is_connected(2)).await?;
        assert_eq!(endless.settle(Outcome::Ack).await?, Settlement::Stale);
        let mut again = Vec::new();
        for _ in 0..2 {
            let delivery = next(&mut source).await?;
            again.push(order(delivery.message()));
            delivery.settle(Outcome::Ack).await?;
        }
        assert_eq!(again, [0, 2], "{kind}");
        source.handle().close(Drain::Finish);
        assert!(source.next().await.is_none());
        closed(&mut source).await?;
        assert_eq!(queue.ready().await?, 0, "{kind}");
    }
    set("channel_tick_interval", 60_000).await;
    Ok(())
}

#[tokio::test]
async fn a_queue_that_is_gone_after_a_cut_ends_the_source_with_an_error() -> Result {
    let queue = TestQueue::declare("gone", "classic", &[]).await?;
    let proxy = Proxy::start(node::address())?;
    let mut source = Queue::new(&queue.name).reconnect(quick()).connect(&url_at(proxy.address())).await?;
    proxy.refuse().await;
    proxy.cut();
    becomes(&source.handle(), is_reconnecting).await?;
    queue.channel.queue_delete(queue.name.as_str().into(), QueueDeleteOptions::default()).await?;
    proxy.heal()?;
    assert!(timeout(PATIENCE, source.next()).await?.is_none());
    let error =
        poll_fn(|cx| Pin::new(&mut source).poll_closed(cx)).await.expect_err("nobody asked for the end");
    assert_eq!(error.kind(), SourceErrorKind::NotFound);
    assert!(error.to_string().contains(&queue.name), "{error}");
    assert!(matches!(source.handle().health().state, State::Closed { error: Some(_) }));
    Ok(())
}

#[tokio::test]
async fn a_password_that_is_another_one_after_a_cut_ends_the_source_with_an_error() -> Result {
    let queue = TestQueue::declare("password", "classic", &[]).await?;
    let (proxy, user) = (Proxy::start(node::address())?, queue.name.as_str());
    node::ctl(&["add_user", user, "first-secret"]).await;
    node::ctl(&["set_permissions", user, ".*", ".*", ".*"]).await;
    let url = url_at(proxy.address()).replace("guest:guest", &format!("{user}:first-secret"));
    let mut source = Queue::new(&queue.name).reconnect(quick()).connect(&url).await?;
    node::ctl(&["change_password", user, "second-secret"]).await;
    proxy.cut();
    assert!(timeout(PATIENCE, source.next()).await?.is_none());
    let error = closed(&mut source).await.expect_err("nobody asked for the end").to_string();
    assert!(error.contains(&format!("user `{user}` was not let in")) && !error.contains("secret"), "{error}");
    assert!(matches!(source.handle().health().state, State::Closed { error: Some(_) }));
    node::ctl(&["delete_user", user]).await;
    Ok(())
}

#[tokio::test]
async fn a_source_without_a_broker_can_be_closed_and_gives_up_when_told_to() -> Result {
    let queue = TestQueue::declare("unreachable", "classic", &[]).await?;
    let proxy = Proxy::start(node::address())?;
    let url = url_at(proxy.address());
    let patient = Queue::new(&queue.name).reconnect(quick());
    let mut patient = patient.connect(&url).await?;
    let hasty = Queue::new(&queue.name).reconnect(quick().later(Some(Duration::from_millis(300))));
    let mut hasty = hasty.connect(&url).await?;
    proxy.refuse().await;
    proxy.cut();
    becomes(&patient.handle(), is_reconnecting).await?;
    patient.handle().close(Drain::Finish);
    assert!(patient.next().await.is_none());
    closed(&mut patient).await?;

    assert!(timeout(PATIENCE, hasty.next()).await?.is_none());
    let error = poll_fn(|cx| Pin::new(&mut hasty).poll_closed(cx)).await.expect_err("it was told to give up");
    assert_eq!(error.kind(), SourceErrorKind::Unreachable);
    Ok(())
}

#[tokio::test]
async fn a_source_in_a_black_hole_closes_in_time() -> Result {
    let queue = TestQueue::declare("hole", "classic", &[]).await?;
    queue.publish_orders(3, 1).await?;
    let proxy = Proxy::start(node::address())?;
    let source = Queue::new(&queue.name).heartbeat(Duration::from_secs(30));
    let mut source = source.connect(&url_at(proxy.address())).await?;
    let delivery = next(&mut source).await?;
    proxy.black_hole();
    delivery.settle(Outcome::Ack).await?;
    source.handle().close(Drain::Finish);
    let since = Instant::now();
    closed(&mut source).await?;
    assert!(since.elapsed() < Duration::from_secs(5), "it took {:?}", since.elapsed());
    Ok(())
}
