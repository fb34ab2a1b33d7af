use std::{pin::Pin, sync::Arc, task::Context};

use parking_lot::Mutex;
use tower_mq_delivery::{Drain, Event, Outcome, Settlement};

use super::{super::*, *};
use crate::source::{Source, SourceError, SourceErrorKind, State};

fn poll_closed(consumer: &mut Consumer) -> Poll<Result<(), SourceError>> {
    Pin::new(consumer).poll_closed(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_lost_connection_gives_everything_back_in_order_and_counts_no_attempt() {
    let broker = Broker::new();
    publish(&broker, ["a", "b", "c", "d"]);
    let mut orders = broker.queue("orders").window(3).consume();
    let mut old = all(&mut orders);
    settle(old.remove(1), Outcome::Ack);
    broker.disconnect_consumers();
    assert!(matches!(orders.handle().health().state, State::Reconnecting { .. }));
    assert!(old.iter().all(|delivery| delivery.message().is_stale()));
    let new = all(&mut orders);
    assert!(matches!(orders.handle().health().state, State::Connected { generation: 2, .. }));
    assert_eq!(texts(&new), ["a", "c", "d"]);
    let redelivered: Vec<_> = new.iter().map(|delivery| delivery.message().redelivered()).collect();
    assert_eq!(redelivered, [true, true, false]);
    assert!(new.iter().all(|d| d.message().attempt() == Some(1) && d.message().generation().number() == 2));
}

#[test]
fn a_settlement_of_an_ended_generation_is_stale_and_changes_nothing() {
    let broker = Broker::new();
    publish(&broker, ["a", "b"]);
    let mut orders = broker.queue("orders").consume();
    let mut old = all(&mut orders);
    orders.drop_connection();
    let new = all(&mut orders);
    assert_eq!(settle(old.remove(0), Outcome::Ack), Settlement::Stale);
    drop(old);
    assert_eq!(broker.depth("orders").unsettled, 2);
    for delivery in new {
        assert_eq!(settle(delivery, Outcome::Ack), Settlement::Confirmed);
    }
    assert_eq!(broker.len("orders"), 0);
}

#[test]
fn a_consumer_that_waits_is_woken_by_a_fault_and_reconnects() {
    let broker = Broker::new();
    let mut orders = broker.queue("orders").consume();
    let (waker, woken) = counted();
    assert!(poll(&mut orders, &waker).is_pending());
    broker.disconnect_consumers();
    assert_eq!(woken(), 1);
    assert!(poll(&mut orders, &waker).is_pending());
    publish(&broker, ["a"]);
    assert_eq!(woken(), 2);
    assert!(next(&mut orders).is_some());
}

#[test]
fn what_one_consumer_lost_another_is_woken_for() {
    let broker = Broker::new();
    publish(&broker, ["a"]);
    let [mut one, mut two] = [(); 2].map(|()| broker.queue("orders").consume());
    let _held = next(&mut one).expect("a");
    let (waker, woken) = counted();
    assert!(poll(&mut two, &waker).is_pending());
    one.drop_connection();
    assert_eq!(woken(), 1);
    assert_eq!(texts(&all(&mut two)), ["a"]);
}

#[test]
fn a_paused_consumer_takes_nothing_and_settles_and_reconnects() {
    let broker = Broker::new();
    publish(&broker, ["a", "b"]);
    let mut orders = broker.queue("orders").consume();
    let handle = orders.handle();
    let a = next(&mut orders).expect("a");
    handle.pause();
    let (waker, woken) = counted();
    assert!(poll(&mut orders, &waker).is_pending());
    assert_eq!(settle(a, Outcome::Ack), Settlement::Confirmed);
    broker.disconnect_consumers();
    assert_eq!(woken(), 1);
    assert!(poll(&mut orders, &waker).is_pending());
    assert!(matches!(handle.health().state, State::Connected { generation: 2, .. }));
    handle.resume();
    assert_eq!(woken(), 2);
    assert_eq!(texts(&all(&mut orders)), ["b"]);
}

#[test]
fn closed_either_way_it_takes_nothing_more_and_completes_with_the_last_settlement() {
    for drain in [Drain::Finish, Drain::Release] {
        let broker = Broker::new();
        publish(&broker, ["a", "b"]);
        let mut orders = broker.queue("orders").consume();
        let a = next(&mut orders).expect("a");
        let (waker, woken) = counted();
        orders.handle().pause();
        assert!(poll(&mut orders, &waker).is_pending());
        orders.handle().close(drain);
        assert_eq!(woken(), 1);
        assert!(matches!(poll(&mut orders, &waker), Poll::Ready(None)));
        assert!(Pin::new(&mut orders).poll_closed(&mut Context::from_waker(&waker)).is_pending());
        settle(a, Outcome::Ack);
        assert_eq!(woken(), 2);
        assert!(matches!(poll_closed(&mut orders), Poll::Ready(Ok(()))));
        assert!(matches!(orders.handle().health().state, State::Closed { error: None }));
        assert_eq!(texts(&all(&mut broker.queue("orders").consume())), ["b"]);
    }
}

#[test]
fn a_broker_that_goes_away_ends_its_consumers_with_an_error() {
    let broker = Broker::new();
    publish(&broker, ["a", "b"]);
    let mut orders = broker.queue("orders").consume();
    let a = next(&mut orders).expect("a");
    let mut idle = broker.queue("idle").consume();
    let (waker, woken) = counted();
    assert!(poll(&mut idle, &waker).is_pending());
    broker.close();
    assert_eq!(woken(), 1);
    assert_eq!(settle(a, Outcome::Ack), Settlement::Stale);
    for consumer in [&mut orders, &mut idle] {
        assert!(matches!(poll(consumer, &waker), Poll::Ready(None)));
        let Poll::Ready(Err(error)) = poll_closed(consumer) else { panic!("an error") };
        assert_eq!(error.kind(), SourceErrorKind::Closed);
        assert!(error.to_string().contains(consumer.handle().origin().name()));
        assert!(matches!(consumer.handle().health().state, State::Closed { error: Some(_) }));
    }
    assert_eq!(broker.depth("orders").ready, 2, "what is stored can be counted");
    assert!(matches!(broker.publish("orders", Message::new("c")), Err(PublishError::Closed { .. })));
}

#[test]
fn a_broker_that_is_gone_is_told_to_those_who_were_reconnecting_and_to_those_who_come() {
    let broker = Broker::new();
    let mut orders = broker.queue("orders").consume();
    broker.disconnect_consumers();
    broker.close();
    let mut late = broker.queue("orders").consume();
    for consumer in [&mut orders, &mut late] {
        assert!(matches!(consumer.handle().health().state, State::Closed { error: Some(_) }));
        assert!(next(consumer).is_none());
        assert!(matches!(poll_closed(consumer), Poll::Ready(Err(_))));
    }
}

/// Dropping the last waker of a task may drop what the task holds: here, a delivery.
#[test]
fn a_waker_that_holds_a_delivery_is_dropped_outside_the_lock() {
    struct Holds(#[allow(dead_code)] Delivery);
    impl Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }
    let broker = Broker::new();
    publish(&broker, ["a", "b", "c"]);
    let mut held = all(&mut broker.queue("orders").consume());
    let mut holder = || Waker::from(Arc::new(Holds(held.remove(0))));
    let mut orders = broker.queue("orders").consume();
    assert!(poll(&mut orders, &holder()).is_pending());
    assert!(
        poll(&mut orders, &holder()).is_pending(),
        "the first waker is replaced, and its delivery comes back"
    );
    orders.handle().close(Drain::Finish);
    assert!(Pin::new(&mut orders).poll_closed(&mut Context::from_waker(&holder())).is_ready());
    drop(orders);
    assert_eq!(broker.depth("orders").ready, 3);
}

#[test]
fn deliveries_outlive_their_consumer_and_go_back_when_dropped() {
    let broker = Broker::new();
    publish(&broker, ["a", "b"]);
    let mut orders = broker.queue("orders").consume();
    let handle = orders.handle();
    let mut held = all(&mut orders);
    drop(orders);
    assert!(matches!(handle.health().state, State::Closed { error: None }));
    assert_eq!(settle(held.remove(0), Outcome::Ack), Settlement::Confirmed);
    drop(held);
    let depth = broker.depth("orders");
    assert_eq!((depth.ready, depth.unsettled), (1, 0));
    assert_eq!(broker.lock().queues[0].subscriptions.len(), 0, "nothing is left of the consumer");
    assert!(next(&mut broker.queue("orders").consume()).expect("back").message().redelivered());
}

#[test]
fn every_settlement_and_every_drop_is_reported_once() {
    let broker = Broker::new();
    publish(&broker, ["a", "b", "c", "d"]);
    let mut orders = broker.queue("orders").max_attempts(1).consume();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    orders.handle().origin().observe(Arc::new(move |_: &tower_mq_delivery::Origin, event: &Event<'_>| {
        log.lock().push(match event {
            Event::Settled { outcome, settlement } => format!("{} {settlement:?}", outcome.name()),
            Event::Replaced { decided, told } => format!("{} as {}", decided.name(), told.name()),
            other => format!("{other:?}"),
        });
    }));
    let mut taken = all(&mut orders);
    settle(taken.remove(0), Outcome::Ack);
    settle(taken.remove(0), Outcome::Retry { after: std::time::Duration::ZERO });
    drop(taken.remove(0));
    orders.drop_connection();
    settle(taken.remove(0), Outcome::Ack);
    let seen = seen.lock();
    assert_eq!(seen[..4], ["ack Confirmed", "retry as reject", "retry Confirmed", "Dropped"]);
    assert!(seen[4].starts_with("Reconnecting"), "{seen:?}");
    assert_eq!(seen[5..], ["ack Stale"]);
}
