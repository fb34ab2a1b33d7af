//! Members whose futures are dropped.

use tokio::time::advance;
use tower::Layer;
use tower_mq_delivery::{ClosedBy, Outcome, Outcomes};
use tower_mq_testing::gate;

use super::{Queue, answered, batch, join, ms, rest};
use crate::BatchLayer;

#[tokio::test(start_paused = true)]
async fn a_member_that_goes_before_its_batch_starts_is_taken_out() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(3).layer(handler), Queue::new(256).lane());
    let mut members = Vec::new();
    for n in 0..2 {
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    drop(members.remove(0));
    for n in 2..4 {
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    let call = gate.next().await;
    assert_eq!(batch(&call), (["1", "2", "3"].map(String::from).to_vec(), ClosedBy::Size));
    call.answer(tower_mq_delivery::Outcomes::Each(vec![
        Ok(Outcome::Ack),
        Ok(Outcome::Release),
        Ok(Outcome::reject("no")),
    ]));
    rest().await;
    let answers: Vec<_> = members.iter_mut().map(|member| answered(member).expect("handled")).collect();
    assert_eq!(answers, ["ack", "release", "reject"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_that_waits_for_another_one_lets_members_go() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(2).layer(handler), Queue::new(256).lane());
    let mut members = Vec::new();
    for n in 0..6 {
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    let first = gate.next().await;
    // One of the second batch, all of the third.
    members.truncate(4);
    drop(members.remove(2));
    first.answer(Outcome::Ack);
    let second = gate.next().await;
    assert_eq!(batch(&second), (vec!["3".to_owned()], ClosedBy::Size));
    second.answer(Outcome::Ack);
    rest().await;
    assert_eq!(gate.waiting(), 0, "no batch without members");
    assert!(service.owners().holds_nothing() && service.owners().remembered() == 0);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_member_that_goes_later_is_dropped() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(2).layer(handler), Queue::new(256).lane());
    let gone = join(&mut service, lane.message("0")).await;
    let mut stays = join(&mut service, lane.message("1")).await;
    let call = gate.next().await;
    drop(gone);
    rest().await;
    assert!(!call.is_cancelled(), "one still waits");
    call.answer(Outcome::Ack);
    rest().await;
    assert_eq!(answered(&mut stays).expect("handled"), "ack");
    assert!(service.owners().holds_nothing());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_nobody_waits_for_any_more_is_dropped_and_the_next_one_runs() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(1).layer(handler), Queue::new(256).lane());
    let gone = join(&mut service, lane.message("0")).await;
    let _next = join(&mut service, lane.message("1")).await;
    let call = gate.next().await;
    drop(gone);
    rest().await;
    assert!(call.is_cancelled());
    assert_eq!(batch(&gate.next().await).0, ["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_first_member_went_waits_no_longer_than_that_one_would_have() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(3).wait(ms(50)).layer(handler), Queue::new(256).lane());
    let first = join(&mut service, lane.message("0")).await;
    rest().await;
    advance(ms(40)).await;
    let joined = tokio::time::Instant::now();
    let _second = join(&mut service, lane.message("1")).await;
    drop(first);
    assert_eq!(batch(&gate.next().await).0, ["1"]);
    assert_eq!(joined.elapsed(), ms(10));
}

#[tokio::test(start_paused = true)]
async fn the_others_are_answered_when_a_result_that_nobody_wants_panics() {
    #[derive(Debug, thiserror::Error)]
    #[error("an error that panics when it is dropped")]
    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(2).layer(handler), Queue::new(256).lane());
    let first = join(&mut service, lane.message("0")).await;
    let mut second = join(&mut service, lane.message("1")).await;
    let call = gate.next().await;
    drop(first);
    call.answer(Outcomes::Each(vec![Err(Fragile.into()), Ok(Outcome::Ack)]));
    rest().await;
    assert_eq!(answered(&mut second).expect("handled"), "ack");
    assert!(service.owners().holds_nothing());
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_a_batch_that_has_lost_all_its_members() {
    let (handler, _gate) = gate();
    let layer = BatchLayer::new(3).wait(ms(3_600_000));
    let (mut service, lane) = (layer.layer(handler), Queue::new(256).lane());
    let members = [join(&mut service, lane.message("0")).await, join(&mut service, lane.message("1")).await];
    rest().await;
    drop(members);
    rest().await;
    assert_eq!(service.owners().remembered(), 0, "its task has ended");
    assert!(service.owners().holds_nothing());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_goes_leaves_its_place_to_others_at_once() {
    let (handler, _gate) = gate();
    let layer = BatchLayer::new(3).wait(ms(3_600_000));
    let (mut service, lane) = (layer.layer(handler), Queue::new(256).lane());
    let before = service.owners().places().available_permits();
    let first = join(&mut service, lane.message("0")).await;
    let _second = join(&mut service, lane.message("1")).await;
    assert_eq!(service.owners().places().available_permits(), before - 2);
    drop(first);
    assert_eq!(service.owners().places().available_permits(), before - 1);
}
