//! The promises of `source::rabbitmq`, kept on a real broker.

#[path = "../support/node.rs"]
mod node;

use std::{
    collections::HashMap,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use futures_util::StreamExt;
use lapin::{
    BasicProperties,
    options::QueueDeleteOptions,
    types::{AMQPValue, DecimalValue, FieldTable},
};
use node::{KINDS, Record, TestQueue, is_full, order, text, url};
use parking_lot::Mutex;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, timeout},
};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_mq::{
    BoxError, Delivery, Drain, ErrorPolicy, Event, Message, Origin, Outcome, PartitionLayer, Publication,
    SettleLayer, Settlement, Value, serve,
    source::{
        Reconnect, Source, SourceErrorKind, State,
        rabbitmq::{Deliveries, OnReject, Properties, PublishError, Publishing, Queue},
    },
};

type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// The next delivery, within the patience of a test.
async fn next(source: &mut Deliveries) -> Result<Delivery> {
    let next = timeout(Duration::from_secs(20), source.next()).await?;
    Ok(next.ok_or("the stream ended")?)
}

/// Nothing is handed out for a while.
async fn is_silent(source: &mut Deliveries) -> bool {
    timeout(Duration::from_millis(300), source.next()).await.is_err()
}

async fn closed(source: &mut Deliveries) -> Result<(), BoxError> {
    let closed = poll_fn(|cx| Pin::new(&mut *source).poll_closed(cx));
    Ok(timeout(Duration::from_secs(20), closed).await??)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_is_in_order_and_nothing_is_lost_or_comes_twice() -> Result {
    let (count, keys, window) = if is_full() { (100_000, 1000, 256) } else { (10_000, 1000, 256) };
    let queue = Arc::new(TestQueue::declare("orders", "classic", &[]).await?);
    queue.publish_orders(count, keys).await?;
    let source = Queue::new(&queue.name).prefetch(window).connect(&url()).await?;

    let record = Record::new(keys);
    let handler = record.clone();
    // Closed until the management API, which is slow, has seen the full window.
    let (open, gate) = watch::channel(false);
    let stack = ServiceBuilder::new().layer(PartitionLayer::by_key(8)).layer(SettleLayer::new()).service_fn(
        move |message: Message| {
            let (handler, mut gate) = (handler.clone(), gate.clone());
            async move {
                gate.wait_for(|open| *open).await?;
                handler.handle(message).await
            }
        },
    );

    // Taken and not settled: counted here, and as the broker sees it.
    let (taken, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let count_taken = {
        let (taken, most) = (taken.clone(), most.clone());
        move |_: &Origin, event: &Event<'_>| match event {
            Event::Taken { .. } => {
                let now = taken.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(now, Ordering::Relaxed);
            }
            Event::Settled { .. } | Event::Dropped => {
                taken.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    };
    let at_broker = Arc::new(Mutex::new(Vec::new()));
    let looking = tokio::spawn({
        let (queue, at_broker) = (queue.clone(), at_broker.clone());
        async move {
            loop {
                // The API does not know of a young queue yet.
                if let Ok(unacknowledged) = queue.statistic("messages_unacknowledged").await {
                    at_broker.lock().push(unacknowledged);
                    if unacknowledged >= u64::from(window) {
                        open.send_replace(true);
                    }
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
    });

    let all = record.clone();
    let serving = serve(source, stack)
        .observer(count_taken)
        .with_graceful_shutdown(async move { all.handled(count).await });
    let report = tokio::spawn(serving).await??;
    looking.abort();

    record.is_complete_and_in_order(count);
    assert_eq!(record.twice(), [0; 0]);
    assert_eq!((report.counts.taken, report.counts.acked), (count.into(), count.into()));
    let most = most.load(Ordering::Relaxed);
    assert!(most <= i64::from(window), "{most} taken and not settled");
    let at_broker = at_broker.lock().clone();
    assert!(at_broker.iter().all(|n| *n <= u64::from(window)), "the broker had {at_broker:?} unacknowledged");
    assert_eq!(queue.ready().await?, 0);
    Ok(())
}

#[tokio::test]
async fn each_outcome_ends_where_it_should() -> Result {
    for kind in KINDS {
        let dead = TestQueue::declare("dead", "classic", &[]).await?;
        let arguments =
            [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead.name))];
        let queue = TestQueue::declare("outcomes", kind, &arguments).await?;
        let source = Queue::new(&queue.name).on_reject(OnReject::BrokerDeadLetters);
        let mut source = source.connect(&url()).await?;

        queue.publish(b"ack", BasicProperties::default()).await?;
        let delivery = next(&mut source).await?;
        assert_eq!((delivery.message().attempt(), delivery.message().redelivered()), (Some(1), false));
        assert_eq!(delivery.settle(Outcome::Ack).await?, Settlement::HandedOver);

        queue.publish(b"release", BasicProperties::default()).await?;
        next(&mut source).await?.settle(Outcome::Release).await?;
        let again = next(&mut source).await?;
        assert!(again.message().redelivered());
        again.settle(Outcome::Ack).await?;

        queue.publish(b"drop", BasicProperties::default()).await?;
        drop(next(&mut source).await?);
        next(&mut source).await?.settle(Outcome::Ack).await?;

        for after in [0, 300] {
            let after = Duration::from_millis(after);
            // The second time round it is a new message: it has not failed.
            queue.publish(b"retry", BasicProperties::default()).await?;
            let mut delivery = next(&mut source).await?;
            for failed in 1..=3 {
                assert_eq!(delivery.message().attempt(), Some(failed), "{kind}");
                let since = Instant::now();
                delivery.settle(Outcome::Retry { after }).await?;
                delivery = next(&mut source).await?;
                assert!(since.elapsed() >= after, "{kind}: came again after {:?}", since.elapsed());
            }
            assert_eq!(
                (delivery.message().attempt(), delivery.message().redelivered()),
                (Some(4), true),
                "{kind}"
            );
            delivery.settle(Outcome::Ack).await?;
        }

        queue.publish(b"reject", BasicProperties::default()).await?;
        next(&mut source).await?.settle(Outcome::reject("no such order")).await?;
        dead.becomes_ready(1).await?;

        assert!(is_silent(&mut source).await);
        source.handle().close(Drain::Finish);
        closed(&mut source).await?;
        assert_eq!(queue.ready().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_reject_without_a_target_comes_again_slowly_and_loudly() -> Result {
    let queue = TestQueue::declare("reject", "classic", &[]).await?;
    queue.publish(b"", BasicProperties::default()).await?;
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    let replaced = Arc::new(Mutex::new(Vec::new()));
    let heard = replaced.clone();
    source.handle().origin().observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
        if let Event::Replaced { decided, told } = event {
            heard.lock().push(((*decided).clone(), (*told).clone()));
        }
    }));
    let since = Instant::now();
    next(&mut source).await?.settle(Outcome::reject("nobody wants it")).await?;
    let again = next(&mut source).await?;
    assert!(again.message().redelivered() && since.elapsed() >= Duration::from_secs(1));
    assert_eq!(*replaced.lock(), [(Outcome::reject("nobody wants it"), Outcome::Release)]);
    let warnings = source.handle().health().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("on_reject")), "{warnings:?}");
    assert!(!again.message().capabilities().reject_has_target);
    again.settle(Outcome::Ack).await?;
    Ok(())
}

#[tokio::test]
async fn five_failed_attempts_end_among_the_dead_letters() -> Result {
    for kind in KINDS {
        let dead = TestQueue::declare("dead", "classic", &[]).await?;
        let arguments =
            [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead.name))];
        let queue = TestQueue::declare("attempts", kind, &arguments).await?;
        queue.publish_orders(20, 4).await?;
        let source = Queue::new(&queue.name)
            .prefetch(8)
            .on_reject(OnReject::BrokerDeadLetters)
            .connect(&url())
            .await?;
        let attempts = Arc::new(Mutex::new(HashMap::<u32, Vec<Option<u32>>>::new()));
        let seen = attempts.clone();
        let policy = ErrorPolicy::retry_within(5, Duration::from_millis(5), Duration::from_millis(20));
        let stack = ServiceBuilder::new().layer(SettleLayer::new().on_error(policy)).service_fn(
            move |message: Message| {
                seen.lock().entry(order(&message)).or_default().push(message.attempt());
                async { Err::<(), _>(BoxError::from("it never works")) }
            },
        );
        let report = serve(source, stack).with_graceful_shutdown(dead.becomes_ready(20)).await?;
        assert_eq!((report.counts.retried, report.counts.rejected), (80, 20), "{kind}: {report}");
        for attempts in attempts.lock().values() {
            assert_eq!(*attempts, [1, 2, 3, 4, 5].map(Some), "{kind}");
        }
        assert_eq!((dead.ready().await?, queue.ready().await?), (20, 0));
    }
    Ok(())
}

#[tokio::test]
async fn a_stuck_handler_costs_one_place() -> Result {
    for kind in KINDS {
        let (count, window) = (500, 16);
        let queue = TestQueue::declare("stuck", kind, &[]).await?;
        queue.publish_orders(count, 1).await?;
        let mut source = Queue::new(&queue.name).prefetch(window).connect(&url()).await?;
        let stuck = next(&mut source).await?;
        for expected in 1..count {
            let delivery = next(&mut source).await?;
            assert_eq!(order(delivery.message()), expected);
            delivery.settle(Outcome::Ack).await?;
        }
        let patience = Instant::now() + Duration::from_secs(10);
        while queue.statistic("messages").await.ok() != Some(1) {
            assert!(Instant::now() < patience, "{kind}: what came after the stuck one is not settled");
            sleep(Duration::from_millis(100)).await;
        }
        stuck.settle(Outcome::Ack).await?;
        source.handle().close(Drain::Finish);
        closed(&mut source).await?;
        assert_eq!(queue.ready().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn settlements_do_not_need_the_stream_to_be_polled() -> Result {
    let queue = TestQueue::declare("unpolled", "classic", &[]).await?;
    queue.publish_orders(30, 1).await?;
    let mut source = Queue::new(&queue.name).prefetch(10).connect(&url()).await?;
    let mut taken = Vec::new();
    for _ in 0..10 {
        taken.push(next(&mut source).await?);
    }
    for delivery in taken {
        delivery.settle(Outcome::Ack).await?;
    }
    // The broker sends the next ten only for those that were settled.
    let patience = Instant::now() + Duration::from_secs(10);
    while queue.statistic("messages").await.ok() != Some(20) {
        assert!(Instant::now() < patience, "nothing was settled");
        sleep(Duration::from_millis(100)).await;
    }
    drop(source);
    queue.becomes_ready(20).await
}

#[tokio::test]
async fn a_paused_source_hands_out_nothing_and_goes_on_settling() -> Result {
    let queue = TestQueue::declare("pause", "classic", &[]).await?;
    queue.publish_orders(10, 1).await?;
    let mut source = Queue::new(&queue.name).prefetch(4).connect(&url()).await?;
    let first = next(&mut source).await?;
    source.handle().pause();
    first.settle(Outcome::Ack).await?;
    assert!(is_silent(&mut source).await);
    source.handle().resume();
    for expected in 1..10 {
        let delivery = next(&mut source).await?;
        assert_eq!(order(delivery.message()), expected);
        delivery.settle(Outcome::Ack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_closed_source_settles_what_was_handed_out_and_leaves_the_rest_in_order() -> Result {
    for kind in KINDS {
        for drain in [Drain::Finish, Drain::Release] {
            let queue =
                TestQueue::declare("close", kind, &[("x-single-active-consumer", AMQPValue::Boolean(true))])
                    .await?;
            queue.publish_orders(40, 1).await?;
            let mut source = Queue::new(&queue.name).prefetch(8).connect(&url()).await?;
            let mut successor = Queue::new(&queue.name).prefetch(8).connect(&url()).await?;
            let mut taken = Vec::new();
            for _ in 0..4 {
                taken.push(next(&mut source).await?);
            }
            source.handle().close(drain);
            assert!(
                timeout(Duration::from_secs(1), source.next()).await?.is_none(),
                "it goes on after the close"
            );
            // 0 and 2 are done, 1 is released, and 3 is held until the others are told.
            let mut taken = taken.into_iter();
            for outcome in [Outcome::Ack, Outcome::Release, Outcome::Ack] {
                taken.next().ok_or("four were taken")?.settle(outcome).await?;
            }
            assert!(is_silent(&mut successor).await, "{kind}: the successor started before the end");
            drop(taken);
            closed(&mut source).await?;
            let handle = source.handle();
            assert!(matches!(handle.health().state, State::Closed { error: None }));
            let rest: Vec<u32> = [1].into_iter().chain(3..40).collect();
            for expected in rest {
                let delivery = next(&mut successor).await?;
                assert_eq!(order(delivery.message()), expected, "{kind} {drain:?}");
                delivery.settle(Outcome::Ack).await?;
            }
            successor.handle().close(Drain::Finish);
            closed(&mut successor).await?;
            assert_eq!(queue.ready().await?, 0);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_dropped_source_gives_everything_back() -> Result {
    let queue = TestQueue::declare("dropped", "classic", &[]).await?;
    queue.publish_orders(10, 1).await?;
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    let (done, open) = (next(&mut source).await?, next(&mut source).await?);
    drop(source);
    done.settle(Outcome::Ack).await?;
    drop(open);
    queue.becomes_ready(9).await
}

#[tokio::test]
async fn a_refusal_names_host_and_queue_and_not_the_password() -> Result {
    let queue = TestQueue::declare("refusal", "classic", &[]).await?;
    let here = node::address().to_string();
    let wrong_password = url().replace("guest:guest", "guest:s3cret");
    let no_vhost = url().replace("%2f", "no-such-host");
    let started = Instant::now();
    let cases = [
        (&queue.name, wrong_password, SourceErrorKind::Authentication),
        (&"no-such-queue".to_owned(), url(), SourceErrorKind::NotFound),
        (&queue.name, no_vhost, SourceErrorKind::NotFound),
    ];
    for (name, url, kind) in cases {
        let error = Queue::new(name).connect(&url).await.expect_err("the broker refuses");
        assert_eq!(error.kind(), kind, "{error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(&here) && text.contains(name), "{text}");
        assert!(
            !text.contains("s3cret:") && !text.contains(":s3cret") && !text.contains("guest:guest"),
            "{text}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(10), "a permanent refusal was tried again");

    let patience = Reconnect::new().first(Some(Duration::from_millis(500)));
    let nobody = "amqp://guest:s3cret@127.0.0.1:1/%2f";
    let error = Queue::new("orders").reconnect(patience).connect(nobody).await.expect_err("nobody listens");
    assert_eq!(error.kind(), SourceErrorKind::Unreachable);
    let text = format!("{error} {error:?}");
    assert!(text.contains("127.0.0.1:1") && text.contains("`orders`") && !text.contains("s3cret"), "{text}");

    let error = Queue::new("orders").prefetch(0).connect(&url()).await.expect_err("it would be no limit");
    assert_eq!(error.kind(), SourceErrorKind::Configuration);
    let encrypted = url().replace("amqp://", "amqps://");
    let error = Queue::new("orders").connect(&encrypted).await.expect_err("this build has no TLS");
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    Ok(())
}

#[tokio::test]
async fn a_deleted_queue_ends_the_source_with_an_error() -> Result {
    let queue = TestQueue::declare("deleted", "classic", &[]).await?;
    queue.publish_orders(1, 1).await?;
    let source = Queue::new(&queue.name).connect(&url()).await?;
    let (handled, done) = oneshot::channel();
    let handled = Mutex::new(Some(handled));
    let stack = ServiceBuilder::new().layer(SettleLayer::new()).service_fn(move |_: Message| {
        let _ = handled.lock().take().map(|handled| handled.send(()));
        async { Ok::<_, BoxError>(()) }
    });
    let serving = tokio::spawn(serve(source, stack));
    done.await?;
    queue.channel.queue_delete(queue.name.as_str().into(), QueueDeleteOptions::default()).await?;
    let error = timeout(Duration::from_secs(20), serving).await??.expect_err("nobody asked for the end");
    let text = error.to_string();
    assert!(text.contains(&queue.name) && text.contains("not there"), "{text}");
    assert_eq!(error.report().counts.acked, 1);
    Ok(())
}

#[tokio::test]
async fn odd_messages_arrive_as_they_were_sent() -> Result {
    for kind in KINDS {
        let queue = TestQueue::declare("odd", kind, &[]).await?;
        let mut source = Queue::new(&queue.name).connect(&url()).await?;

        queue.publish(b"", BasicProperties::default()).await?;
        let delivery = next(&mut source).await?;
        let message = delivery.message();
        assert!(message.payload().is_empty() && message.key().is_none() && message.id().is_none());
        assert_eq!(message.headers().iter().filter(|(name, _)| !name.starts_with("x-")).count(), 0);
        delivery.settle(Outcome::Ack).await?;

        let big: Vec<u8> = (0..3 << 20).map(|index| (index % 251) as u8).collect();
        queue.publish(&big, BasicProperties::default()).await?;
        let delivery = next(&mut source).await?;
        assert!(delivery.message().payload()[..] == big[..]);
        delivery.settle(Outcome::Ack).await?;

        let mut table = FieldTable::default();
        table.insert("inner".into(), AMQPValue::ShortShortInt(-1));
        let values = [
            ("bool", AMQPValue::Boolean(true), Value::Bool(true)),
            ("i8", AMQPValue::ShortShortInt(-8), Value::I8(-8)),
            ("u8", AMQPValue::ShortShortUInt(8), Value::U8(8)),
            ("i16", AMQPValue::ShortInt(-16), Value::I16(-16)),
            ("u16", AMQPValue::ShortUInt(16), Value::U16(16)),
            ("i32", AMQPValue::LongInt(-32), Value::I32(-32)),
            ("u32", AMQPValue::LongUInt(32), Value::U32(32)),
            ("i64", AMQPValue::LongLongInt(i64::MIN), Value::I64(i64::MIN)),
            ("f32", AMQPValue::Float(0.5), Value::F32(0.5)),
            ("f64", AMQPValue::Double(-0.25), Value::F64(-0.25)),
            (
                "decimal",
                AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 5 }),
                Value::Decimal { scale: 2, value: 5 },
            ),
            ("text", text("ä"), Value::from("ä")),
            ("not text", AMQPValue::LongString(vec![0xff].into()), Value::from(&[0xff][..])),
            ("bytes", AMQPValue::ByteArray(vec![0, 1].into()), Value::from(&[0, 1][..])),
            ("time", AMQPValue::Timestamp(7), Value::Time(UNIX_EPOCH + Duration::from_secs(7))),
            ("void", AMQPValue::Void, Value::Null),
            ("list", AMQPValue::FieldArray(vec![AMQPValue::Void].into()), Value::List(vec![Value::Null])),
            ("map", AMQPValue::FieldTable(table), Value::Map(vec![("inner".into(), Value::I8(-1))])),
        ];
        let mut headers = FieldTable::default();
        for (name, value, _) in &values {
            headers.insert((*name).into(), value.clone());
        }
        headers.insert("amqp-partition-key".into(), AMQPValue::LongLongInt(-7));
        let properties = BasicProperties::default()
            .with_headers(headers)
            .with_message_id("id".into())
            .with_correlation_id("cause".into())
            .with_reply_to("answers".into())
            .with_content_type("text/plain".into())
            .with_timestamp(1_700_000_000)
            .with_priority(3)
            .with_type("order".into());
        queue.publish(b"x", properties).await?;
        let delivery = next(&mut source).await?;
        let message = delivery.message();
        for (name, _, expected) in &values {
            assert_eq!(message.header(name).as_ref(), Some(expected), "{kind}: {name}");
        }
        assert_eq!(message.key().ok_or("a number is a key")?, "-7");
        assert_eq!(
            (message.id().as_deref(), message.correlation_id().as_deref()),
            (Some("id"), Some("cause"))
        );
        assert_eq!(
            (message.reply_to().as_deref(), message.content_type().as_deref()),
            (Some("answers"), Some("text/plain"))
        );
        assert_eq!(message.timestamp(), Some(UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
        let native = message.native::<Properties>().ok_or("it is from RabbitMQ")?;
        assert_eq!(
            (native.exchange(), native.routing_key(), native.kind()),
            ("", &*queue.name, Some("order"))
        );
        assert_eq!((native.priority(), native.is_persistent(), native.delivery_tag()), (Some(3), true, 3));

        // A copy keeps all of it.
        let copies = TestQueue::declare("copies", "classic", &[]).await?;
        let publisher = Publishing::new().connect(&url()).await?;
        publisher.to(copies.name.clone()).oneshot(Publication::new(message.clone())).await?;
        let mut source = Queue::new(&copies.name).connect(&url()).await?;
        let copy = next(&mut source).await?;
        for (name, _, expected) in &values {
            assert_eq!(copy.message().header(name).as_ref(), Some(expected), "copy: {name}");
        }
        let native = copy.message().native::<Properties>().ok_or("it is from RabbitMQ")?;
        assert_eq!(
            (native.kind(), native.priority(), copy.message().id().as_deref()),
            (Some("order"), Some(3), Some("id"))
        );
        copy.settle(Outcome::Ack).await?;
        delivery.settle(Outcome::Ack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_publication_is_done_when_the_broker_has_it_and_fails_when_it_has_not() -> Result {
    let queue = TestQueue::declare("published", "quorum", &[]).await?;
    let publisher = Publishing::new().window(64).connect(&url()).await?;

    let mut orders = publisher.to(queue.name.clone());
    let mut under_way = Vec::new();
    for number in 0..1000u32 {
        let message = Message::builder(number.to_be_bytes().to_vec()).key("k").build();
        under_way.push(tokio::spawn(orders.ready().await?.call(Publication::new(message))));
    }
    for done in under_way {
        done.await??;
    }
    assert_eq!(queue.ready().await?, 1000);
    let mut source = Queue::new(&queue.name).connect(&url()).await?;
    for expected in 0..1000 {
        let delivery = next(&mut source).await?;
        assert_eq!(order(delivery.message()), expected, "published in the order of the calls");
        assert_eq!(delivery.message().key().ok_or("it has a key")?, "k");
        delivery.settle(Outcome::Ack).await?;
    }

    let publication = || Publication::new(Message::new("x"));
    let error =
        publisher.clone().oneshot(publication().to("no-such-queue")).await.expect_err("it leads nowhere");
    assert!(
        matches!(&error, PublishError::Unroutable { destination } if destination.contains("no-such-queue")),
        "{error}"
    );
    let error = publisher.clone().oneshot(publication()).await.expect_err("it has no destination");
    assert!(matches!(error, PublishError::Invalid(_)), "{error}");

    let full = TestQueue::declare(
        "full",
        "classic",
        &[("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", text("reject-publish"))],
    )
    .await?;
    let mut full = publisher.to(full.name.clone());
    let mut refused = 0;
    for _ in 0..5 {
        match full.ready().await?.call(publication()).await {
            Ok(_) => {}
            Err(PublishError::Refused { .. }) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    assert!(refused >= 3, "only {refused} refused");

    // A missing exchange costs the channel; the next publication goes over a new one.
    let error =
        publisher.exchange("no-such-exchange").oneshot(publication()).await.expect_err("it is not there");
    assert!(
        matches!(&error, PublishError::Lost { .. }) && error.to_string().contains("no-such-exchange"),
        "{error}"
    );
    publisher
        .exchange("amq.direct")
        .oneshot(publication().to("nobody"))
        .await
        .expect_err("it is bound to nothing");
    orders.ready().await?.call(publication()).await?;
    Ok(())
}

#[tokio::test]
async fn headers_that_are_too_large_for_a_frame_are_refused_and_disturb_nobody() -> Result {
    let queue = TestQueue::declare("large-headers", "classic", &[]).await?;
    let mut publisher = Publishing::new().connect(&url()).await?.to(queue.name.clone());
    let mut publish = async |bytes: usize| {
        let message = Message::builder("x").header("large", vec![0u8; bytes]).header("i", 1i64).build();
        publisher.ready().await?.call(Publication::new(message)).await
    };
    // The largest that RabbitMQ takes with its default of 131,072 bytes for a frame.
    let most = 131_072 - 8 - 14 - 1 - 4 - (6 + 1 + 4) - (2 + 1 + 8);
    let (fits, too_large, fits_again) = (publish(most).await, publish(most + 1).await, publish(1).await);
    fits?;
    let error = too_large.expect_err("one byte too many");
    assert!(matches!(&error, PublishError::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("131073 bytes"), "{error}");
    fits_again?;
    assert!(matches!(publisher.health().state, State::Connected { generation: 1, .. }));
    queue.becomes_ready(2).await
}
