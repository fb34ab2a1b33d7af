//! Dead letters on the embedded broker: what a copy keeps, and that no message is in two places or in none.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use futures_util::StreamExt;
use parking_lot::Mutex;
use tower::{ServiceBuilder, ServiceExt};
use tower_mq::{
    BoxError, DeadLetterLayer, ErrorPolicy, FailureExt, Message, Outcome, SettleLayer, Value,
    dead_letter::{
        DEAD_LETTER_ATTEMPTS, DEAD_LETTER_FIRST_FAILURE, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON,
        DEAD_LETTER_TRIES,
    },
    serve,
    source::memory::Broker,
};

const HOUR: Duration = Duration::from_secs(3600);

async fn refuse(_: Message) -> Result<(), BoxError> {
    Ok("many".parse::<u32>().map(drop).or_reject()?)
}

/// Every type that a header can have.
fn values() -> Vec<(&'static str, Value<'static>)> {
    let list = Value::List(vec![Value::Null, Value::I16(-3)]);
    vec![
        ("null", Value::Null),
        ("bool", true.into()),
        ("i8", (-1i8).into()),
        ("u64", u64::MAX.into()),
        ("f32", 0.5f32.into()),
        ("decimal", Value::Decimal { scale: 2, value: 1234 }),
        ("char", 'ä'.into()),
        ("text", "blue".into()),
        ("bytes", vec![0xff, 0].into()),
        ("symbol", Value::Symbol("amqp:accepted".into())),
        ("uuid", Value::Uuid([7; 16])),
        ("time", Value::Time(UNIX_EPOCH + HOUR)),
        ("map", Value::Map(vec![("list".into(), list)])),
    ]
}

#[tokio::test]
async fn a_copy_keeps_all_that_the_message_was() -> Result<(), BoxError> {
    let broker = Broker::new();
    let mut message = Message::builder(vec![0, 0xff, b'x'])
        .key(vec![0xfe])
        .id("7")
        .correlation_id("6")
        .reply_to("answers")
        .content_type("application/x-order")
        .timestamp(UNIX_EPOCH + HOUR);
    for (name, value) in values() {
        message = message.header(name, value);
    }
    broker.publish("orders", message.build())?;

    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead")))
        .service_fn(refuse);
    let report = serve(broker.queue("orders").consume(), stack)
        .with_graceful_shutdown(broker.drained("orders"))
        .await?;
    assert_eq!((report.counts.acked, report.counts.rejected), (1, 0));

    let delivery = broker.queue("orders.dead").consume().next().await.ok_or("it was copied")?;
    let dead = delivery.message();
    assert_eq!(
        (&dead.payload()[..], dead.key().map(|key| &key[..])),
        (&[0, 0xff, b'x'][..], Some(&[0xfe][..]))
    );
    assert_eq!((dead.id().as_deref(), dead.correlation_id().as_deref()), (Some("7"), Some("6")));
    assert_eq!((dead.reply_to().as_deref(), dead.timestamp()), (Some("answers"), Some(UNIX_EPOCH + HOUR)));
    assert_eq!(dead.content_type().as_deref(), Some("application/x-order"));
    let headers = dead.headers();
    let headers: Vec<_> = headers.iter().collect();
    let (kept, added) = headers.split_at(values().len());
    assert_eq!(kept, values());
    let names: Vec<_> = added.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            DEAD_LETTER_REASON,
            DEAD_LETTER_ATTEMPTS,
            DEAD_LETTER_TRIES,
            DEAD_LETTER_QUEUE,
            DEAD_LETTER_FIRST_FAILURE
        ]
    );
    assert_eq!(dead.header(DEAD_LETTER_REASON), Some("invalid digit found in string".into()));
    assert_eq!(dead.header(DEAD_LETTER_QUEUE), Some("orders".into()));
    assert_eq!((dead.attempt(), dead.redelivered()), (Some(1), false), "it is a new message");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn attempts_and_the_first_failure_are_those_of_all_deliveries() -> Result<(), BoxError> {
    let broker = Broker::new();
    broker.publish("orders", Message::new("x"))?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let failures = seen.clone();
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new().on_error(ErrorPolicy::retry_within(3, HOUR, HOUR)))
        .layer(DeadLetterLayer::new(broker.publisher().to("orders.dead")))
        .service_fn(move |message: Message| {
            failures.lock().push(message.first_failure());
            async { Err::<(), BoxError>("down".into()) }
        });
    let report = serve(broker.queue("orders").consume(), stack)
        .with_graceful_shutdown(broker.drained("orders"))
        .await?;
    assert_eq!((report.counts.retried, report.counts.acked), (2, 1));
    let delivery = broker.queue("orders.dead").consume().next().await.ok_or("it was copied")?;
    let dead = delivery.message();
    assert_eq!(dead.header(DEAD_LETTER_ATTEMPTS), Some(Value::U32(3)));
    let [None, Some(first), Some(_)] = seen.lock()[..] else { return Err("no first failure".into()) };
    assert_eq!(dead.header(DEAD_LETTER_FIRST_FAILURE), Some(Value::Time(first)));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn while_the_dead_letters_are_away_a_message_stays_where_it_is() -> Result<(), BoxError> {
    let (broker, dead) = (Broker::new(), Broker::new());
    broker.publish("orders", Message::new("x"))?;
    dead.close();
    let mut orders = broker.queue("orders").consume();
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(dead.publisher().to("orders.dead")).attempts(3))
        .service_fn(refuse);
    for _ in 0..3 {
        let delivery = orders.next().await.ok_or("it comes again")?;
        assert_eq!(stack.clone().oneshot(delivery).await?.outcome, Outcome::Release);
        assert_eq!((broker.len("orders"), broker.depth("orders").unsettled), (1, 0));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_dead_letters_that_are_away() -> Result<(), BoxError> {
    let (broker, dead) = (Broker::new(), Broker::new());
    broker.publish("orders", Message::new("x"))?;
    dead.close();
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(dead.publisher().to("orders.dead")).backoff(HOUR, HOUR))
        .service_fn(refuse);
    let source = broker.queue("orders").consume();
    let start = tokio::time::Instant::now();
    let stop = tokio::time::sleep(Duration::from_secs(1));
    let report = serve(source, stack).with_graceful_shutdown(stop).await?;
    assert_eq!((report.counts.released, broker.len("orders")), (1, 1));
    assert!(start.elapsed() < Duration::from_secs(2));
    Ok(())
}
