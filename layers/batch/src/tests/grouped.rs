//! Several batches open at a time.

use tokio::time::{Instant, advance};
use tower::Layer;
use tower_mq_delivery::{ClosedBy, Message, Outcome};
use tower_mq_testing::gate;

use super::{Lane, Queue, batch, join, ms, rest};
use crate::BatchLayer;

fn by_key(size: usize) -> BatchLayer {
    BatchLayer::new(size).group_by(|message| message.key().cloned())
}

fn message(lane: &Lane, key: &'static str, text: &'static str) -> Message {
    lane.take(Message::builder(text).key(key))
}

#[tokio::test(start_paused = true)]
async fn groups_are_gathered_apart_and_in_order() {
    let (handler, gate) = gate();
    let (mut service, lane) = (by_key(2).layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let mut members = Vec::new();
    for (key, text) in [("a", "0"), ("b", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("c", "5")] {
        members.push(join(&mut service, message(&lane, key, text)).await);
    }
    for (expected, closed_by, after) in [
        (&["0", "2"][..], ClosedBy::Size, 0),
        (&["1", "4"], ClosedBy::Size, 0),
        (&["3"], ClosedBy::Wait, 10),
        (&["5"], ClosedBy::Wait, 10),
    ] {
        let call = gate.next().await;
        assert_eq!(batch(&call), (expected.iter().map(|text| (*text).to_owned()).collect(), closed_by));
        assert_eq!(start.elapsed(), ms(after));
        assert_eq!(gate.waiting(), 0, "one at a time");
        call.answer(Outcome::Ack);
        rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_always_full_does_not_starve_one_that_is_due() {
    let (handler, gate) = gate();
    let (mut service, lane) = (by_key(2).layer(handler), Queue::new(256).lane());
    let mut members = Vec::new();
    members.push(join(&mut service, message(&lane, "rare", "0")).await);
    for text in ["1", "2"] {
        members.push(join(&mut service, message(&lane, "hot", text)).await);
    }
    let first = gate.next().await;
    advance(ms(11)).await;
    for text in ["3", "4", "5", "6"] {
        members.push(join(&mut service, message(&lane, "hot", text)).await);
    }
    first.answer(Outcome::Ack);
    assert_eq!(batch(&gate.next().await), (vec!["0".to_owned()], ClosedBy::Wait));
}

#[tokio::test(start_paused = true)]
async fn one_group_too_many_closes_the_oldest() {
    let (handler, gate) = gate();
    let (mut service, lane) = (by_key(9).groups(2).layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let mut members = Vec::new();
    for (key, text) in [("a", "0"), ("b", "1"), ("a", "2"), ("c", "3")] {
        members.push(join(&mut service, message(&lane, key, text)).await);
    }
    let call = gate.next().await;
    assert_eq!(batch(&call), (vec!["0".to_owned(), "2".to_owned()], ClosedBy::Groups));
    assert_eq!(start.elapsed(), ms(0));
    members.push(join(&mut service, message(&lane, "a", "4")).await);
    call.answer(Outcome::Ack);
    assert_eq!(batch(&gate.next().await), (vec!["1".to_owned()], ClosedBy::Groups));
}

#[tokio::test(start_paused = true)]
async fn an_idle_lane_closes_all_of_its_groups() {
    let (handler, gate) = gate();
    let (mut service, lane) = (by_key(9).ready().layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let _both = [
        join(&mut service, message(&lane, "a", "0")).await,
        join(&mut service, message(&lane, "b", "1")).await,
    ];
    lane.turns.idle();
    for _ in 0..2 {
        let call = gate.next().await;
        assert_eq!((batch(&call).1, start.elapsed()), (ClosedBy::Idle, ms(0)));
        call.answer(Outcome::Ack);
    }
}
