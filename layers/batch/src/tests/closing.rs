//! When a batch is closed, and why.

use tokio::time::{Instant, advance};
use tower::{Layer, Service};
use tower_mq_delivery::{Batch, ClosedBy, Drain, Message, Outcome};
use tower_mq_testing::gate;

use super::{Queue, answered, batch, join, ms, rest};
use crate::BatchLayer;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_burst_fills_whole_batches_at_once_and_the_rest_goes_at_wait() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(3).layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let mut answers = Vec::new();
    for n in 0..7 {
        answers.push(join(&mut service, lane.message(n.to_string())).await);
    }
    for expected in [names(&["0", "1", "2"]), names(&["3", "4", "5"])] {
        let call = gate.next().await;
        assert_eq!((batch(&call), start.elapsed()), ((expected, ClosedBy::Size), ms(0)));
        call.answer(Outcome::Ack);
    }
    let last = gate.next().await;
    assert_eq!((batch(&last), start.elapsed()), ((names(&["6"]), ClosedBy::Wait), ms(10)));
    last.answer(Outcome::Ack);
    rest().await;
    answers.iter_mut().for_each(|answer| assert_eq!(answered(answer).expect("acked"), "ack"));
    assert!(service.owners().holds_nothing());
}

#[tokio::test(start_paused = true)]
async fn a_trickle_closes_wait_after_its_first_member() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(9).wait(ms(50)).layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let mut answers = Vec::new();
    for n in 0..4 {
        answers.push(join(&mut service, lane.message(n.to_string())).await);
        tokio::time::sleep(ms(15)).await;
    }
    let first = gate.next().await;
    assert_eq!(batch(&first), (names(&["0", "1", "2", "3"]), ClosedBy::Wait));
    assert_eq!(start.elapsed(), ms(60), "it was closed at 50, while the source slept");
    first.answer(Outcome::Ack);
    let start = Instant::now();
    let _second = join(&mut service, lane.message("4")).await;
    let second = gate.next().await;
    assert_eq!((batch(&second), start.elapsed()), ((names(&["4"]), ClosedBy::Wait), ms(50)));
}

#[tokio::test(start_paused = true)]
async fn the_timer_of_a_closed_batch_never_touches_the_next_one() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(2).wait(ms(50)).layer(handler), Queue::new(256).lane());
    let _first = join(&mut service, lane.message("0")).await;
    // Its timer is set.
    rest().await;
    advance(ms(40)).await;
    let _second = join(&mut service, lane.message("1")).await;
    gate.next().await.answer(Outcome::Ack);
    let opened = Instant::now();
    let _third = join(&mut service, lane.message("2")).await;
    let call = gate.next().await;
    assert_eq!((batch(&call).1, opened.elapsed()), (ClosedBy::Wait, ms(50)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_while_nothing_is_open_and_no_batch_is_empty() {
    let (handler, gate) = gate::<Batch<Message>>();
    let (mut service, lane) = (BatchLayer::new(2).layer(handler), Queue::new(256).lane());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..3 {
        drop(join(&mut service, lane.message("gone")).await);
        rest().await;
        assert_eq!((tasks(), service.owners().remembered()), (0, 0), "no task that could be woken");
    }
    advance(ms(100)).await;
    rest().await;
    assert_eq!(gate.waiting(), 0, "no batch without members");
    let mut answer = join(&mut service, lane.message("0")).await;
    gate.next().await.answer(Outcome::Ack);
    rest().await;
    assert!(answered(&mut answer).is_ok());
    assert_eq!((tasks(), service.owners().remembered()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_waiting_a_batch_takes_what_is_there() {
    let (handler, gate) = gate();
    let service = BatchLayer::new(3).wait(ms(1000)).ready();
    let (mut service, lane) = (service.layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let mut answers = Vec::new();
    for n in 0..4 {
        answers.push(join(&mut service, lane.message(n.to_string())).await);
    }
    gate.next().await.answer(Outcome::Ack);
    rest().await;
    assert_eq!(gate.waiting(), 0, "the lane may have more");
    lane.turns.idle();
    let running = gate.next().await;
    assert_eq!(batch(&running), (names(&["3"]), ClosedBy::Idle));
    answers.push(join(&mut service, lane.message("4")).await);
    lane.turns.idle();
    rest().await;
    answers.push(join(&mut service, lane.message("5")).await);
    running.answer(Outcome::Ack);
    let call = gate.next().await;
    assert_eq!(batch(&call), (names(&["4", "5"]), ClosedBy::Idle), "it gathered while another one ran");
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_between_lane_and_batch_is_waited_for_no_longer_than_wait() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(3).ready().layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let _first = join(&mut service, lane.message("0")).await;
    // The lane is never idle: the next one holds its turn, in another layer.
    assert_eq!(batch(&gate.next().await), (names(&["0"]), ClosedBy::Wait));
    assert_eq!(start.elapsed(), ms(10));
}

#[tokio::test(start_paused = true)]
async fn one_that_holds_up_the_lane_until_a_member_is_answered_is_not_waited_for() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(3).ready().layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let _first = join(&mut service, lane.message("0")).await;
    let twin = lane.message("0, again");
    let _stalled = twin.turn().stall();
    assert_eq!(batch(&gate.next().await), (names(&["0"]), ClosedBy::Idle));
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_message_outside_of_any_driver_waits_for_nobody() {
    let (handler, gate) = gate();
    let mut service = BatchLayer::new(3).ready().layer(handler);
    let start = Instant::now();
    let _answers = [join(&mut service, Message::new("0")).await, join(&mut service, Message::new("1")).await];
    assert_eq!(batch(&gate.next().await), (names(&["0", "1"]), ClosedBy::Idle));
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_holds_the_whole_window_is_closed_at_once() {
    let (handler, gate) = gate();
    let queue = Queue::new(3);
    let (mut service, lane) = (BatchLayer::new(9).layer(handler), queue.lane());
    let start = Instant::now();
    let mut answers = Vec::new();
    for n in 0..3 {
        answers.push(join(&mut service, lane.message(n.to_string())).await);
    }
    let running = gate.next().await;
    assert_eq!((batch(&running), start.elapsed()), ((names(&["0", "1", "2"]), ClosedBy::Window), ms(0)));
    drop(running);
    rest().await;
    let _next = join(&mut service, lane.message("3")).await;
    assert_eq!((batch(&gate.next().await).1, start.elapsed()), (ClosedBy::Wait, ms(10)));
}

#[tokio::test(start_paused = true)]
async fn what_other_lanes_run_is_part_of_the_window() {
    let (handler, gate) = gate();
    let queue = Queue::new(5);
    let (mut service, a, b) = (BatchLayer::new(3).layer(handler), queue.lane(), queue.lane());
    let start = Instant::now();
    let mut members = Vec::new();
    for n in 0..4 {
        members.push(join(&mut service, a.message(n.to_string())).await);
    }
    let _stuck = gate.next().await;
    members.push(join(&mut service, b.message("4")).await);
    rest().await;
    assert_eq!(gate.waiting(), 0, "one is open in a lane whose batch may end");
    drop(members.remove(3));
    let _last = join(&mut service, b.message("5")).await;
    assert_eq!(batch(&gate.next().await), (names(&["4", "5"]), ClosedBy::Window));
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_spread_over_open_batches_closes_the_one_that_came_last() {
    let (handler, gate) = gate();
    let queue = Queue::new(3);
    let (mut service, a, b) = (BatchLayer::new(3).layer(handler), queue.lane(), queue.lane());
    let start = Instant::now();
    let _two = [join(&mut service, a.message("0")).await, join(&mut service, a.message("1")).await];
    let _third = join(&mut service, b.message("2")).await;
    assert_eq!(batch(&gate.next().await), (names(&["2"]), ClosedBy::Window));
    assert_eq!(start.elapsed(), ms(0));
    assert_eq!((batch(&gate.next().await).1, start.elapsed()), (ClosedBy::Wait, ms(10)));
}

#[tokio::test(start_paused = true)]
async fn a_size_that_the_window_cannot_fill_is_warned_of_once_naming_both() {
    let (handler, gate) = gate();
    let queue = Queue::new(3);
    let (mut service, lane) = (BatchLayer::new(500).layer(handler), queue.lane());
    for _ in 0..2 {
        let _answer = join(&mut service, lane.message("0")).await;
        gate.next().await.answer(Outcome::Ack);
        rest().await;
    }
    let events = queue.events();
    let warnings: Vec<_> = events.iter().filter(|event| event.contains("500")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("the window is 3"), "{warnings:?}");

    let queue = Queue::new(500);
    let _answer = join(&mut service, queue.lane().message("0")).await;
    rest().await;
    assert!(queue.events().is_empty(), "a window of the same size fills it");
}

#[tokio::test(start_paused = true)]
async fn a_drain_closes_what_is_open_and_what_comes() {
    let (handler, gate) = gate();
    let queue = Queue::new(256);
    let (mut service, a, b) = (BatchLayer::new(9).layer(handler), queue.lane(), queue.lane());
    let start = Instant::now();
    let _both = [join(&mut service, a.message("0")).await, join(&mut service, b.message("1")).await];
    rest().await;
    queue.origin().start_drain(Drain::Finish);
    for expected in ["0", "1"] {
        let call = gate.next().await;
        assert_eq!(batch(&call), (names(&[expected]), ClosedBy::Drain));
        call.answer(Outcome::Ack);
    }
    let _late = join(&mut service, a.message("2")).await;
    assert_eq!(batch(&gate.next().await), (names(&["2"]), ClosedBy::Drain));
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_closed_before_it_is_too_long_and_what_is_too_long_goes_alone() {
    let (handler, gate) = gate();
    let service = BatchLayer::new(9).max_bytes(4);
    let (mut service, lane) = (service.layer(handler), Queue::new(256).lane());
    let start = Instant::now();
    let mut answers = Vec::new();
    for text in ["aa", "bb", "ccc", "dd", "eeeeeeee", "f"] {
        answers.push(join(&mut service, lane.message(text)).await);
    }
    for expected in [&["aa", "bb"][..], &["ccc"], &["dd"], &["eeeeeeee"]] {
        let call = gate.next().await;
        assert_eq!(batch(&call), (names(expected), ClosedBy::Bytes));
        call.answer(Outcome::Ack);
    }
    assert_eq!(start.elapsed(), ms(0));
    assert_eq!(batch(&gate.next().await), (names(&["f"]), ClosedBy::Wait));
}

#[tokio::test(start_paused = true)]
async fn the_next_batch_gathers_while_one_runs_and_starts_when_it_ends() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(3).layer(handler), Queue::new(256).lane());
    let mut answers = Vec::new();
    answers.push(join(&mut service, lane.message("0")).await);
    let first = gate.next().await;
    answers.push(join(&mut service, lane.message("1")).await);
    advance(ms(100)).await;
    rest().await;
    answers.push(join(&mut service, lane.message("2")).await);
    rest().await;
    assert_eq!(gate.waiting(), 0, "one at a time");
    first.answer(Outcome::Ack);
    let second = gate.next().await;
    assert_eq!(batch(&second), (names(&["1", "2"]), ClosedBy::Wait));
    for n in 3..7 {
        answers.push(join(&mut service, lane.message(n.to_string())).await);
    }
    second.answer(Outcome::Ack);
    let third = gate.next().await;
    assert_eq!(batch(&third), (names(&["3", "4", "5"]), ClosedBy::Size));
}

#[tokio::test(start_paused = true)]
async fn the_turn_is_passed_when_the_message_is_in_its_batch() {
    let (handler, gate) = gate::<Batch<Message>>();
    let (mut service, lane) = (BatchLayer::new(3).capacity(6).layer(handler), Queue::new(256).lane());
    let mut answers = Vec::new();
    for n in 0..6 {
        answers.push(join(&mut service, lane.message(n.to_string())).await);
        assert!(lane.goes_on());
    }
    let mut readiness = tokio_test::task::spawn(());
    assert!(readiness.enter(|cx, _| service.poll_ready(cx)).is_pending(), "twice the size is there");
    gate.next().await.answer(Outcome::Ack);
    rest().await;
    assert!(readiness.is_woken());
    assert!(readiness.enter(|cx, _| service.poll_ready(cx)).is_ready());
}

#[tokio::test(start_paused = true)]
async fn lanes_that_use_up_all_places_do_not_wait_for_each_other() {
    let (handler, gate) = gate();
    let queue = Queue::new(256);
    let service = BatchLayer::new(2).capacity(4).wait(ms(3_600_000));
    let (mut service, lanes) = (service.layer(handler), [(); 4].map(|()| queue.lane()));
    let start = Instant::now();
    let mut answers = Vec::new();
    for (n, lane) in lanes.iter().enumerate() {
        answers.push(join(&mut service, lane.message(n.to_string())).await);
    }
    assert_eq!(batch(&gate.next().await), (names(&["3"]), ClosedBy::Window));
    assert_eq!(start.elapsed(), ms(0));
}
