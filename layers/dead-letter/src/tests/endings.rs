//! What becomes of a copy when nobody waits for it any more, the stack drains, or the message is somebody else's.

use tokio::task::yield_now;
use tokio_test::{assert_pending, assert_ready, task};
use tower_mq_delivery::Drain;
use tower_mq_testing::gate;

use super::*;

/// Lets timers and tasks go on.
async fn settle() {
    for _ in 0..8 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_leaves_nothing_behind_at_any_stage() {
    // In the handler.
    let (target, source) = (Target::default(), Source::new());
    let (handler, gate) = gate::<Message>();
    let mut stack = tower::Layer::layer(&layer(&target), handler);
    let mut response = task::spawn(stack.call(source.message()));
    assert_pending!(response.poll());
    assert_eq!(gate.waiting(), 1);
    drop(response);
    assert_eq!((gate.waiting(), target.tries()), (0, 0));

    // While the publisher is not ready, while it is at work, and in a pause.
    for (act, calls, open) in [(NotReady, 0, 0), (Hang { stored: true }, 1, 1), (Refuse, 1, 0)] {
        let (target, source) = (Target::new([act]), Source::new());
        let mut response = task::spawn(layer(&target).layer_fn(rejects).oneshot(source.message()));
        assert_pending!(response.poll());
        assert_eq!((target.tries(), target.calls(), target.open()), (1, calls, open), "{act:?}");
        drop(response);
        settle().await;
        tokio::time::advance(100 * SECOND).await;
        assert_eq!((target.tries(), target.open()), (1, 0), "{act:?}");
    }

    // Never polled.
    let (target, source) = (Target::default(), Source::new());
    let mut stack = layer(&target).layer_fn(rejects);
    drop(stack.ready().await.expect("ready").call(source.message()));
    assert_eq!(target.tries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_with_a_release_when_the_stack_drains() {
    for drain in [Drain::Finish, Drain::Release] {
        let (target, source) = (Target::new([Refuse]), Source::new());
        let mut response = task::spawn(layer(&target).layer_fn(rejects).oneshot(source.message()));
        assert_pending!(response.poll());
        source.generation.origin().start_drain(drain);
        assert!(response.is_woken());
        assert_eq!(assert_ready!(response.poll()).expect("decided"), Outcome::Release);
        assert_eq!((target.tries(), source.events()), (1, vec!["again", "given up"]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_being_published_is_finished_while_the_stack_drains_and_tried_once() {
    let source = Source::new();
    source.generation.origin().start_drain(Drain::Finish);
    let target = Target::default();
    assert_eq!(rejected(layer(&target), &source).await, Outcome::Ack);
    let (target, start) = (Target::new([Refuse]), Instant::now());
    assert_eq!(rejected(layer(&target), &source).await, Outcome::Release);
    assert_eq!((target.tries(), start.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_last_pause_ends_with_the_stack_too() {
    let (target, source) = (Target::new([Refuse]), Source::new());
    let mut response = task::spawn(layer(&target).attempts(1).layer_fn(rejects).oneshot(source.message()));
    assert_pending!(response.poll());
    assert_eq!(source.events(), ["given up"]);
    source.generation.origin().start_drain(Drain::Finish);
    assert_eq!(assert_ready!(response.poll()).expect("decided"), Outcome::Release);
    assert_eq!(source.events(), Vec::<&str>::new(), "it is given up once");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_when_the_message_is_somebody_elses() {
    // Before the first try.
    let (target, source) = (Target::default(), Source::new());
    let (handler, gate) = gate::<Message>();
    let mut response = task::spawn(tower::Layer::layer(&layer(&target), handler).call(source.message()));
    assert_pending!(response.poll());
    source.generation.end();
    gate.next().await.answer(Outcome::reject("no such order"));
    assert_eq!(assert_ready!(response.poll()).expect("decided"), Outcome::Release);
    assert_eq!((target.tries(), source.events()), (0, vec!["given up"]));

    // While the publisher is not ready, while it is at work, and in a pause.
    for (act, calls, events) in [
        (NotReady, 0, vec!["given up"]),
        (Hang { stored: true }, 1, vec!["given up"]),
        (Refuse, 1, vec!["again", "given up"]),
    ] {
        let (target, source) = (Target::new([act]), Source::new());
        let mut response = task::spawn(layer(&target).layer_fn(rejects).oneshot(source.message()));
        assert_pending!(response.poll());
        source.generation.end();
        assert!(response.is_woken(), "{act:?}");
        assert_eq!(assert_ready!(response.poll()).expect("decided"), Outcome::Release, "{act:?}");
        assert_eq!((target.tries(), target.calls(), target.open()), (1, calls, 0), "{act:?}");
        assert_eq!(source.events(), events, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_that_came_in_time_counts_though_the_generation_has_ended() {
    let (target, source) = (Target::default(), Source::new());
    let generation = source.generation.clone();
    let publisher = target.publisher().map_response(move |receipt| {
        generation.end();
        receipt
    });
    let stack = DeadLetterLayer::new(publisher).layer_fn(rejects);
    assert_eq!(stack.oneshot(source.message()).await.expect("decided"), Outcome::Ack);
    assert_eq!((target.copies(), source.events()), (1, vec!["dead"]));
}

#[tokio::test(start_paused = true)]
async fn what_the_handler_holds_is_free_before_the_copy_is_published() {
    let (target, source) = (Target::new([Hang { stored: false }]), Source::new());
    let limit = tower::limit::ConcurrencyLimit::new(service_fn(rejects), 1);
    let mut stack = task::spawn(tower::Layer::layer(&layer(&target), limit));
    let ready = stack.enter(|cx, mut stack| Service::<Message>::poll_ready(&mut *stack, cx));
    assert!(matches!(ready, Poll::Ready(Ok(()))));
    let mut response = task::spawn(stack.call(source.message()));
    assert_pending!(response.poll());
    let ready = stack.enter(|cx, mut stack| Service::<Message>::poll_ready(&mut *stack, cx));
    assert!(matches!(ready, Poll::Ready(Ok(()))), "the place under the limit is free");
}

#[tokio::test(start_paused = true)]
async fn a_message_knows_whether_it_is_acked_for_its_copy() {
    for (act, outcome, copied) in [(Confirm, Outcome::Ack, true), (NeverReady, Outcome::Release, false)] {
        let (target, source) = (Target::new([act; 8]), Source::new());
        let message = source.message();
        let answer = layer(&target).layer_fn(rejects).oneshot(message.clone()).await.expect("decided");
        assert_eq!((answer, message.is_dead_lettered()), (outcome, copied), "{act:?}");
    }
}
