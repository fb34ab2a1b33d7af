//! Members that must not be handled any more.

use tower::{Layer, Service, ServiceExt};
use tower_mq_delivery::{Drain, Outcome};
use tower_mq_testing::gate;

use super::{Queue, answered, batch, join, rest};
use crate::BatchLayer;

#[tokio::test(start_paused = true)]
async fn members_of_a_generation_that_has_ended_are_released_and_reported() {
    let (handler, gate) = gate();
    let queue = Queue::new(256);
    let (mut service, lane) = (BatchLayer::new(2).layer(handler), queue.lane());
    let mut members = Vec::new();
    for n in 0..5 {
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    let first = gate.next().await;
    queue.generation.end();
    rest().await;
    for member in &mut members[2..] {
        assert_eq!(answered(member).expect("decided"), "release");
    }
    assert_eq!(queue.events()[1..], ["not handled 2", "not handled 3", "not handled 4"]);
    assert!(!first.is_cancelled(), "what runs is finished");
    first.answer(Outcome::Ack);
    rest().await;
    assert_eq!(answered(&mut members[0]).expect("handled"), "ack");
    assert_eq!(gate.waiting(), 0);
    assert!(service.owners().holds_nothing() && service.owners().remembered() == 0);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_too_late_is_released_at_once() {
    for release in [false, true] {
        let (handler, gate) = gate();
        let queue = Queue::new(256);
        let (mut service, lane) = (BatchLayer::new(1).layer(handler), queue.lane());
        match release {
            true => queue.origin().start_drain(Drain::Release),
            false => queue.generation.end(),
        }
        let answer = service.ready().await.expect("ready").call(lane.message("0"));
        assert_eq!(answer.await.expect("decided"), Outcome::Release);
        assert_eq!((queue.events(), gate.waiting()), (vec!["not handled 0".to_owned()], 0));
        assert!(service.owners().holds_nothing());
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_releases_gives_back_what_has_not_started() {
    let (handler, gate) = gate();
    let queue = Queue::new(256);
    let (mut service, lane) = (BatchLayer::new(2).layer(handler), queue.lane());
    let mut members = Vec::new();
    for n in 0..3 {
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    let first = gate.next().await;
    queue.origin().start_drain(Drain::Release);
    rest().await;
    assert_eq!(answered(&mut members[2]).expect("decided"), "release");
    first.answer(Outcome::Ack);
    rest().await;
    assert_eq!(answered(&mut members[0]).expect("finished"), "ack");
    assert_eq!(queue.events(), ["gathered 2", "not handled 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_comes_to_release_gives_back_at_once_what_waits_for_a_batch_to_end() {
    let (handler, gate) = gate();
    let queue = Queue::new(256);
    let (mut service, lane) = (BatchLayer::new(1).layer(handler), queue.lane());
    let _first = join(&mut service, lane.message("0")).await;
    let mut second = join(&mut service, lane.message("1")).await;
    let running = gate.next().await;
    queue.origin().start_drain(Drain::Finish);
    rest().await;
    queue.origin().start_drain(Drain::Release);
    rest().await;
    assert_eq!(answered(&mut second).expect("decided"), "release");
    assert!(!running.is_cancelled(), "what runs is finished");
    assert_eq!(gate.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_never_mixes_generations() {
    let (handler, gate) = gate();
    let queue = Queue::new(256);
    let (mut service, mut lane) = (BatchLayer::new(2).layer(handler), queue.lane());
    // Both live, as those of two assignments do.
    let other = tower_mq_delivery::Generation::numbered(queue.generation.origin().clone(), 2);
    let mut members = Vec::new();
    for n in 0..4 {
        lane.generation = if n % 2 == 0 { queue.generation.clone() } else { other.clone() };
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    for expected in [["0", "2"], ["1", "3"]] {
        let call = gate.next().await;
        assert_eq!(batch(&call).0, expected);
        call.answer(Outcome::Ack);
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_generation_does_not_wait_for_what_an_ended_one_still_runs() {
    let (handler, gate) = gate();
    let queue = Queue::new(2);
    let (mut service, mut lane) = (BatchLayer::new(2).layer(handler), queue.lane());
    let other = queue.lane();
    let _stuck = [join(&mut service, other.message("0")).await, join(&mut service, other.message("1")).await];
    let stuck = gate.next().await;
    lane.generation = queue.generation.next();
    let _first = join(&mut service, lane.message("2")).await;
    rest().await;
    assert_eq!(gate.waiting(), 0, "there is a window of its own, and room in it");
    drop(stuck);
}
