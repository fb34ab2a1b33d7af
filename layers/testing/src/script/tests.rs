//! What the script says is what comes out.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::Instant;
use tower_mq_delivery::{Delivery, Outcome, SettleError, Settlement, Settling};

use super::*;

fn next(orders: &mut Scripted) -> Option<Delivery> {
    match Pin::new(orders).poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(next) => next,
        Poll::Pending => None,
    }
}

fn poll_closed(orders: &mut Scripted) -> Poll<Result<(), BoxError>> {
    orders.poll_closed(&mut Context::from_waker(Waker::noop()))
}

fn order(text: &'static str) -> MessageBuilder {
    Message::builder(text)
}

#[tokio::test(start_paused = true)]
async fn steps_are_done_in_order_and_in_their_time() {
    let (mut orders, script) = source();
    let start = Instant::now();
    let a = script.deliver(order("a"));
    script.wait(Duration::from_secs(5));
    let b = script.deliver(order("b"));
    script.end();
    assert!(a.taken_at().is_none());
    while let Some(delivery) = orders.next().await {
        let _settling = delivery.settle(Outcome::Ack);
    }
    assert_eq!(a.taken_at(), Some(start));
    assert_eq!(b.taken_at(), Some(start + Duration::from_secs(5)));
    assert!(matches!(poll_closed(&mut orders), Poll::Ready(Ok(()))));
}

#[test]
fn no_more_than_the_window_is_handed_out() {
    let (mut orders, script) = source_of(Origin::new("orders", "test", 1, Capabilities::unknown()));
    let probes = ["a", "b"].map(|text| script.deliver(order(text)));
    let a = next(&mut orders).expect("the first");
    assert!(next(&mut orders).is_none());
    assert_eq!(script.unsettled(), 1);
    let _settling = a.settle(Outcome::Ack);
    probes[0].assert_settled(&Outcome::Ack);
    drop(next(&mut orders).expect("the second"));
    probes[1].assert_dropped();
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_goes_on_where_it_was() {
    let (mut orders, script) = source();
    let _probe = script.deliver(order("a"));
    script.stall();
    assert!(next(&mut orders).is_none());
    let resumed = script.clone();
    tokio::spawn(async move { resumed.resume() });
    assert!(orders.next().await.is_some(), "it is woken");
}

#[test]
fn a_new_generation_makes_stale_what_is_out_and_frees_the_window() {
    let (mut orders, script) = source_of(Origin::new("orders", "test", 1, Capabilities::unknown()));
    let [first, _second] = ["a", "b"].map(|text| script.deliver(order(text)));
    let a = next(&mut orders).expect("the first");
    script.new_generation();
    assert!(a.message().is_stale());
    let b = next(&mut orders).expect("the window is free");
    assert_eq!(b.message().generation().number(), 2);
    drop(a);
    assert!(first.is_stale());
    assert_eq!(script.unsettled(), 1, "a stale settlement is not that of the live one");
}

#[test]
fn a_failed_stream_says_why_and_one_that_was_closed_waits_for_the_last_settlement() {
    let (mut orders, script) = source();
    script.fail("the queue was deleted");
    assert!(next(&mut orders).is_none());
    let Poll::Ready(Err(error)) = poll_closed(&mut orders) else { panic!("an error") };
    assert_eq!(error.to_string(), "the queue was deleted");

    let (mut orders, script) = source();
    let _probe = script.deliver(order("a"));
    let a = next(&mut orders);
    assert!(poll_closed(&mut orders).is_pending());
    drop(a);
    assert!(poll_closed(&mut orders).is_ready());
}

fn text(delivery: &Delivery) -> &str {
    std::str::from_utf8(delivery.message().payload()).expect("text")
}

fn told(settling: Settling) -> Option<Result<Settlement, SettleError>> {
    settling.now_or_never()
}

#[test]
fn what_is_out_when_the_connection_is_lost_comes_again_before_all_else() {
    let (mut orders, script) = source_of(Origin::new("orders", "test", 3, Capabilities::unknown()));
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|text| script.deliver(order(text).key("k").attempt(2)));
    let [first, second, third] = [(); 3].map(|()| next(&mut orders).expect("it is there"));
    let _settling = second.settle(Outcome::Ack);
    script.disconnect();
    assert!(first.message().is_stale());
    assert_eq!(told(first.settle(Outcome::Ack)).expect("at once").expect("told"), Settlement::Stale);
    for (expected, attempt, redelivered) in [("a", 2, true), ("c", 2, true), ("d", 2, false)] {
        let again = next(&mut orders).expect("it comes again");
        let message = again.message();
        assert_eq!(
            (text(&again), message.attempt(), message.redelivered()),
            (expected, Some(attempt), redelivered)
        );
        assert_eq!((message.generation().number(), message.key().cloned()), (2, Some("k".into())));
        let _settling = again.settle(Outcome::Release);
    }
    drop(third);
    assert!(a.is_stale() && c.is_stale() && b.again().is_none() && d.again().is_none());
    a.again().expect("it came again").assert_settled(&Outcome::Release);
    b.assert_settled(&Outcome::Ack);
}

#[test]
fn it_comes_again_as_it_is_asked_to() {
    let (mut orders, script) = source();
    let a = script.deliver(order("a").id("one"));
    for (again, attempt, redelivered) in [
        (Again::new(), 1, true),
        (Again::new().counted(), 2, true),
        (Again::new().unmarked(), 2, false),
        (Again::new().attempt(7), 7, true),
    ] {
        let lost = next(&mut orders).expect("it is there");
        script.disconnect_as(again);
        drop(lost);
        let found = next(&mut orders).expect("it comes again");
        assert_eq!((found.message().attempt(), found.message().redelivered()), (Some(attempt), redelivered));
        assert_eq!(found.message().id().as_deref(), Some("one"));
        // Once more, so that the next round finds it out.
        script.disconnect_as(Again::new().attempt(attempt));
    }
    let mut last = a;
    let mut times = 0;
    while let Some(again) = last.again() {
        (last, times) = (again, times + 1);
    }
    assert_eq!(times, 8);
}

#[test]
fn a_duplicate_is_another_delivery_of_the_same_message() {
    let (mut orders, script) = source();
    let [first, second] = script.deliver_twice(order("a").id("one").key("k"));
    let third = script.deliver_again(&first);
    for (probe, redelivered) in [(first, false), (second, false), (third, true)] {
        let delivery = next(&mut orders).expect("it is there");
        assert_eq!((text(&delivery), delivery.message().id().as_deref()), ("a", Some("one")));
        assert_eq!(delivery.message().redelivered(), redelivered);
        probe.assert_unsettled();
        let _settling = delivery.settle(Outcome::Ack);
        probe.assert_settled(&Outcome::Ack);
    }
}

#[test]
fn another_order_has_the_same_deliveries_and_is_the_same_for_a_seed() {
    let orders_of = |seed| {
        let (mut orders, script) = source();
        let _twice = script.deliver_twice(order("0"));
        let _probes = ["1", "2", "3", "4", "5"].map(|text| script.deliver(order(text)));
        script.reorder(seed);
        let mut order = Vec::new();
        while let Some(delivery) = next(&mut orders) {
            order.push(text(&delivery).to_owned());
        }
        order
    };
    let straight = ["0", "0", "1", "2", "3", "4", "5"];
    let all: Vec<_> = (0..20).map(orders_of).collect();
    assert!(all.iter().any(|order| order != &straight), "another order");
    assert!(all.iter().any(|order| order != &all[0]), "not always the same one");
    assert_eq!(orders_of(7), all[7]);
    for order in &all {
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(sorted, straight);
    }
}

#[test]
fn nothing_is_put_past_a_wait() {
    for seed in 0..20 {
        let (mut orders, script) = source();
        let _before = ["a", "b"].map(|text| script.deliver(order(text)));
        script.end();
        let _after = ["c", "d"].map(|text| script.deliver(order(text)));
        script.reorder(seed);
        let mut before = [(); 2].map(|()| text(&next(&mut orders).expect("before the end")).to_owned());
        before.sort();
        assert_eq!(before, ["a", "b"]);
        assert!(next(&mut orders).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_answered_as_the_script_says_and_costs_no_place_meanwhile() {
    let (mut orders, script) = source_of(Origin::new("orders", "test", 1, Capabilities::unknown()));
    script.reply_with(Reply::confirmed().after(Duration::from_secs(3)));
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|text| script.deliver(order(text)));
    b.reply_with(Reply::refused("the disk is full"));
    c.reply_with(Reply::lease_lost().held());
    let mut settle = || next(&mut orders).expect("there is a place").settle(Outcome::Ack);
    let start = Instant::now();
    let [of_a, of_b, of_c, of_d] = [settle(), settle(), settle(), settle()];
    assert_eq!(of_a.now().expect("no error"), Settlement::HandedOver);
    assert!(matches!(told(of_b), Some(Err(SettleError::Refused(_)))));
    assert!(matches!(b.told(), Some(Err(SettleError::Refused(_)))));
    assert_eq!((a.told().is_none(), script.unsettled()), (true, 0));
    assert_eq!(of_a.await.expect("no error"), Settlement::Confirmed);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert!(matches!(a.told(), Some(Ok(Settlement::Confirmed))));
    assert!(c.told().is_none());
    script.let_through();
    assert_eq!(told(of_c).expect("it was let through").expect("no error"), Settlement::LeaseLost);
    assert!(!c.let_through(), "once");
    assert_eq!(of_d.await.expect("no error"), Settlement::Confirmed);
    d.assert_settled(&Outcome::Ack);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_without_an_answer_comes_again_when_the_connection_is_lost() {
    let (mut orders, script) = source();
    let [a, b] = ["a", "b"].map(|text| script.deliver(order(text)));
    a.reply_with(Reply::confirmed().held());
    b.reply_with(Reply::confirmed().after(Duration::from_secs(3)));
    let [of_a, of_b] = [(); 2].map(|()| next(&mut orders).expect("it is there").settle(Outcome::Ack));
    script.disconnect();
    assert!(matches!(of_a.await, Err(SettleError::Ended)));
    assert!(matches!(of_b.await, Err(SettleError::Ended)));
    assert!(!a.let_through(), "it is too late");
    for expected in ["a", "b"] {
        assert_eq!(text(&next(&mut orders).expect("it comes again")), expected);
    }
}
