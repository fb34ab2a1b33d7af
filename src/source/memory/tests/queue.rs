use std::time::Duration;

use tokio::time::Instant;
use tower_mq_delivery::{
    ATTEMPT_HEADER, Attempts, Message, NotStored, Outcome, Publication, Settlement, Value,
};
use tower_service::Service;

use super::{super::*, *};

const SECOND: Duration = Duration::from_secs(1);

fn retry(after: Duration) -> Outcome {
    Outcome::Retry { after }
}

#[test]
fn messages_come_in_the_order_of_publishing() {
    let broker = Broker::new();
    publish(&broker, ["a", "b", "c"]);
    let mut orders = broker.queue("orders").consume();
    assert_eq!(texts(&all(&mut orders)), ["a", "b", "c"]);
}

#[test]
fn no_more_than_the_window_is_taken_and_each_settlement_makes_room_for_one() {
    let broker = Broker::new();
    publish(&broker, ["a", "b", "c", "d"]);
    let mut orders = broker.queue("orders").window(2).consume();
    let mut taken = all(&mut orders);
    assert_eq!(texts(&taken), ["a", "b"]);
    let (waker, woken) = counted();
    assert!(poll(&mut orders, &waker).is_pending());
    assert_eq!(settle(taken.remove(0), Outcome::Ack), Settlement::Confirmed);
    assert_eq!(woken(), 1);
    taken.extend(all(&mut orders));
    assert_eq!(texts(&taken), ["b", "c"]);
    assert_eq!(broker.depth("orders").unsettled, 2);
}

#[test]
fn a_release_goes_back_to_the_front_in_the_original_order_and_counts_no_attempt() {
    let broker = Broker::new();
    publish(&broker, ["a", "b", "c"]);
    let mut orders = broker.queue("orders").window(2).consume();
    let mut taken = all(&mut orders);
    // In the wrong order, on purpose.
    settle(taken.remove(1), Outcome::Release);
    settle(taken.remove(0), Outcome::Release);
    let taken = all(&mut orders);
    assert_eq!(texts(&taken), ["a", "b"]);
    assert!(taken.iter().all(|d| d.message().redelivered() && d.message().attempt() == Some(1)));
}

#[test]
fn a_delivery_that_is_dropped_is_released() {
    let broker = Broker::new();
    publish(&broker, ["a"]);
    let mut orders = broker.queue("orders").consume();
    drop(next(&mut orders));
    let again = next(&mut orders).expect("it is back");
    assert!(again.message().redelivered());
    assert_eq!(again.message().attempt(), Some(1));
}

#[test]
fn a_retry_counts_an_attempt() {
    let broker = Broker::new();
    publish(&broker, ["a"]);
    let mut orders = broker.queue("orders").consume();
    let first = next(&mut orders).expect("published");
    assert_eq!((first.message().attempt(), first.message().redelivered()), (Some(1), false));
    settle(first, retry(Duration::ZERO));
    let second = next(&mut orders).expect("at once");
    assert_eq!((second.message().attempt(), second.message().redelivered()), (Some(2), true));
    assert_eq!(orders.capabilities().attempts, Attempts::Broker);
}

#[tokio::test(start_paused = true)]
async fn a_retry_comes_back_to_its_place_when_its_delay_is_over_and_not_before() {
    let broker = Broker::new();
    publish(&broker, ["a", "b"]);
    let start = Instant::now();
    let mut orders = broker.queue("orders").consume();
    let mut taken = all(&mut orders);
    settle(taken.remove(0), retry(SECOND));
    settle(taken.remove(0), retry(2 * SECOND));
    assert_eq!((broker.depth("orders").delayed, broker.depth("orders").unsettled), (2, 0));
    let a = wait(&mut orders).await;
    assert_eq!((text(&a), start.elapsed()), ("a".into(), SECOND));
    tokio::time::advance(2 * SECOND).await;
    publish(&broker, ["c"]);
    assert_eq!(broker.depth("orders").ready, 2);
    assert_eq!(texts(&all(&mut orders)), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_waits_hears_of_a_shorter_delay() {
    let broker = Broker::new();
    publish(&broker, ["a", "b"]);
    let start = Instant::now();
    let [mut one, mut two] = [(); 2].map(|()| broker.queue("orders").window(1).consume());
    let [a, b] = [&mut one, &mut two].map(|consumer| next(consumer).expect("one for each"));
    settle(a, retry(10 * SECOND));
    let waits = tokio::spawn(async move { text(&wait(&mut one).await) });
    tokio::task::yield_now().await;
    settle(b, retry(SECOND));
    assert_eq!(waits.await.expect("it does not panic"), "b");
    assert_eq!(start.elapsed(), SECOND);
}

#[test]
fn a_delay_that_no_clock_can_express_is_a_long_one() {
    let broker = Broker::new();
    publish(&broker, ["a"]);
    settle(next(&mut broker.queue("orders").consume()).expect("published"), retry(Duration::MAX));
    assert_eq!(broker.depth("orders").delayed, 1);
}

#[test]
fn a_rejected_message_is_a_dead_letter_that_tells_why() {
    let broker = Broker::new();
    let message = Message::builder("a").key("k").id("7").header("tenant", "blue").build();
    broker.publish("orders", message).expect("open");
    let mut orders = broker.queue("orders").dead_letters("graveyard").consume();
    settle(next(&mut orders).expect("published"), retry(Duration::ZERO));
    settle(next(&mut orders).expect("again"), Outcome::reject("no such table"));
    assert_eq!((broker.len("orders"), broker.len("graveyard")), (0, 1));
    assert_eq!(broker.depth("orders").dead_lettered, 1);
    let dead = next(&mut broker.queue("graveyard").consume()).expect("moved");
    let dead = dead.message();
    assert_eq!((dead.payload(), dead.key().map(|k| &k[..])), (&"a".into(), Some(&b"k"[..])));
    assert_eq!((dead.attempt(), dead.redelivered(), &*dead.destination()), (Some(1), false, "graveyard"));
    assert_eq!(dead.id().as_deref(), Some("7"));
    let names: Vec<_> = dead.properties().headers().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["tenant", DEAD_LETTER_REASON, DEAD_LETTER_ATTEMPTS, DEAD_LETTER_QUEUE]);
    assert_eq!(dead.header("tenant"), Some("blue".into()));
    assert_eq!(dead.header(DEAD_LETTER_REASON), Some("no such table".into()));
    assert_eq!(dead.header(DEAD_LETTER_ATTEMPTS), Some(Value::U32(2)));
    assert_eq!(dead.header(DEAD_LETTER_QUEUE), Some("orders".into()));
}

#[test]
fn a_reject_is_kept_unless_the_user_says_otherwise() {
    let broker = Broker::new();
    publish(&broker, ["a", "b"]);
    settle(next(&mut broker.queue("orders").consume()).expect("a"), Outcome::reject("bad"));
    assert_eq!(broker.len("orders.dead"), 1);
    let mut orders = broker.queue("orders").discard_rejects().consume();
    settle(next(&mut orders).expect("b"), Outcome::reject("bad"));
    assert_eq!(
        (broker.len("orders"), broker.len("orders.dead"), broker.depth("orders").discarded),
        (0, 1, 1)
    );
}

#[test]
fn the_last_attempt_that_fails_makes_a_dead_letter() {
    let broker = Broker::new();
    publish(&broker, ["a"]);
    let mut orders = broker.queue("orders").max_attempts(3).consume();
    for attempt in 1..=3 {
        let delivery = next(&mut orders).expect("another attempt");
        assert_eq!(delivery.message().attempt(), Some(attempt));
        assert_eq!(settle(delivery, retry(Duration::ZERO)), Settlement::Confirmed);
    }
    assert!(next(&mut orders).is_none());
    let dead = next(&mut broker.queue("orders.dead").consume()).expect("moved");
    assert_eq!(dead.message().header(DEAD_LETTER_ATTEMPTS), Some(Value::U32(3)));
}

#[test]
fn a_message_that_moves_from_queue_to_queue_does_not_grow() {
    let broker = Broker::new();
    publish(&broker, ["a"]);
    let mut orders = broker.queue("orders").dead_letters("orders").consume();
    let mut moved = broker.publisher().to("orders");
    for _ in 0..3 {
        settle(next(&mut orders).expect("there it is"), Outcome::reject("once more"));
        let delivery = next(&mut orders).expect("there it is");
        let copy = Publication::new(delivery.message().clone()).header("hop", 1);
        settle(delivery, Outcome::Ack);
        let _stored = moved.call(copy);
    }
    let delivery = next(&mut orders).expect("there it is");
    assert_eq!(delivery.message().properties().headers().count(), 4);
}

#[test]
fn the_header_of_a_delayed_copy_ends_with_that_copy() {
    let broker = Broker::new();
    let names = |message: &Message| -> Vec<_> {
        message.properties().headers().map(|(name, _)| name.to_owned()).collect()
    };
    let message = Message::builder("a").header(ATTEMPT_HEADER, 1).header("tenant", "blue").build();
    broker.publish("orders", message).expect("open");
    let mut orders = broker.queue("orders").consume();
    let delivery = next(&mut orders).expect("published");
    assert_eq!(
        (names(delivery.message()), delivery.message().header(ATTEMPT_HEADER)),
        (vec!["tenant".into()], None)
    );
    let mut publisher = broker.publisher().to("orders");
    let _stored = publisher.call(Publication::new(delivery.message().clone()).header(ATTEMPT_HEADER, 2));
    settle(delivery, Outcome::Ack);
    let delayed = next(&mut orders).expect("put off");
    assert_eq!(delayed.message().header(ATTEMPT_HEADER), Some(Value::I32(2)));
    let _stored = publisher.call(Publication::new(delayed.message().clone()).header("hop", 1));
    settle(delayed, Outcome::Ack);
    let copy = next(&mut orders).expect("copied");
    assert_eq!(
        (names(copy.message()), copy.message().header(ATTEMPT_HEADER)),
        (vec!["tenant".into(), "hop".into()], None)
    );
}

#[tokio::test]
async fn a_publisher_stores_what_it_is_given_where_it_is_told() {
    let broker = Broker::new();
    let mut publisher = broker.publisher().to("orders");
    let message = Message::builder("a").header("tenant", "blue").header("zone", 1).build();
    publisher.call(Publication::new(message.clone()).header("tenant", "red")).await.expect("stored");
    publisher.call(Publication::new(message.clone()).to("other")).await.expect("stored");
    assert_eq!((broker.len("orders"), broker.len("other")), (1, 1));
    let stored = next(&mut broker.queue("orders").consume()).expect("stored");
    let mut headers = stored.message().properties().headers();
    assert_eq!(headers.next(), Some(("zone", Value::I32(1))));
    assert_eq!(headers.next(), Some(("tenant", "red".into())));
    assert_eq!(headers.next(), None);
    let lost = broker.publisher().call(Publication::new(message)).await;
    assert!(matches!(&lost, Err(error @ PublishError::NoDestination) if NotStored::is_in(error)));
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_drained_when_the_last_message_has_left_it() {
    let broker = Broker::new();
    broker.drained("orders").await;
    publish(&broker, ["a", "b"]);
    let mut orders = broker.queue("orders").consume();
    let mut taken = all(&mut orders);
    let drained = tokio::spawn(broker.drained("orders"));
    tokio::task::yield_now().await;
    settle(taken.remove(0), Outcome::Ack);
    settle(taken.remove(0), retry(SECOND));
    tokio::time::sleep(SECOND / 2).await;
    assert!(!drained.is_finished());
    settle(wait(&mut orders).await, Outcome::reject("bad"));
    drained.await.expect("it does not panic");
}
