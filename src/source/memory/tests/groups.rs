use std::time::Duration;

use tower_mq_delivery::Outcome;

use super::{super::*, *};

#[test]
fn a_key_is_with_one_consumer_and_goes_on_when_its_first_message_is_settled() {
    let broker = Broker::new();
    publish_keyed(&broker, ["a/1", "a/2", "b/1", "a/3", "b/2"]);
    let mut one = broker.queue("orders").grouped().consume();
    let mut two = broker.queue("orders").consume();
    assert!(!one.capabilities().redelivery_breaks_key_order);
    let a1 = next(&mut one).expect("a");
    let b1 = next(&mut two).expect("b");
    assert_eq!((text(&a1), text(&b1)), ("a/1".into(), "b/1".into()));
    assert!(next(&mut one).is_none() && next(&mut two).is_none());
    settle(a1, Outcome::Ack);
    let a2 = next(&mut two).expect("a goes on, anywhere");
    assert_eq!(text(&a2), "a/2");
    assert!(next(&mut one).is_none());
    settle(a2, Outcome::reject("bad"));
    settle(b1, Outcome::Ack);
    assert_eq!(texts(&all(&mut one)), ["a/3", "b/2"]);
}

#[test]
fn what_is_released_comes_before_the_rest_of_its_key() {
    let broker = Broker::new();
    broker.queue("orders").grouped().declare();
    publish_keyed(&broker, ["a/1", "a/2"]);
    let mut orders = broker.queue("orders").consume();
    drop(next(&mut orders));
    let first = next(&mut orders).expect("again");
    assert_eq!(text(&first), "a/1");
    assert!(next(&mut orders).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_delay_holds_up_its_key_and_no_other() {
    let broker = Broker::new();
    broker.queue("orders").grouped().declare();
    publish_keyed(&broker, ["a/1", "a/2", "b/1"]);
    let mut orders = broker.queue("orders").consume();
    settle(next(&mut orders).expect("a"), Outcome::Retry { after: Duration::from_secs(5) });
    assert_eq!(texts(&all(&mut orders)), ["b/1"]);
    // b/1 was dropped there, and is back.
    settle(next(&mut orders).expect("b"), Outcome::Ack);
    let again = wait(&mut orders).await;
    assert_eq!((text(&again), again.message().attempt()), ("a/1".into(), Some(2)));
    settle(again, Outcome::Ack);
    assert_eq!(texts(&all(&mut orders)), ["a/2"]);
}

#[test]
fn messages_without_a_key_are_in_no_group() {
    let broker = Broker::new();
    broker.queue("orders").grouped().declare();
    publish(&broker, ["1", "2"]);
    assert_eq!(all(&mut broker.queue("orders").consume()).len(), 2);
}

#[test]
fn a_queue_that_becomes_grouped_waits_for_what_is_out() {
    let broker = Broker::new();
    publish_keyed(&broker, ["a/1", "a/2", "a/3", "a/4"]);
    let mut orders = broker.queue("orders").window(2).consume();
    let mut out = all(&mut orders);
    let mut grouped = broker.queue("orders").grouped().consume();
    assert!(next(&mut grouped).is_none());
    settle(out.remove(0), Outcome::Ack);
    assert!(next(&mut grouped).is_none());
    settle(out.remove(0), Outcome::Ack);
    assert_eq!(texts(&all(&mut grouped)), ["a/3"]);
}

#[test]
fn a_key_is_forgotten_when_its_last_message_is_done() {
    let broker = Broker::new();
    broker.queue("orders").grouped().declare();
    publish_keyed(&broker, ["a/1", "a/2", "b/1"]);
    let mut orders = broker.queue("orders").consume();
    while let Some(delivery) = next(&mut orders) {
        settle(delivery, Outcome::Ack);
    }
    assert_eq!(broker.lock().queues[0].line.groups(), 0);
}
