//! Every way in which a delivery ends, and what becomes of its place.

mod stage;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll, Waker},
    time::Duration,
};

use stage::{Stage, Trick, call, message, modes, next_ready, quiet};
use tokio_test::task::spawn;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message, SharedError};
use tower_mq_partition::Closed;

fn quietly() {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&"planned") {
                usual(info);
            }
        }));
    });
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_again_when_the_response_is_handed_over() {
    for (mode, layer) in modes(1) {
        let stage = Stage::default();
        let mut service = layer.capacity(1).layer(stage.service());
        let mut response = spawn(service.ready().await.expect("ready").call(message(0, 0)));
        let mut ready = spawn(());
        let mut other = service.clone();
        let mut poll_ready =
            |ready: &mut tokio_test::task::Spawn<()>| ready.enter(|cx, _| other.poll_ready(cx));
        assert!(response.poll().is_pending());
        assert!(poll_ready(&mut ready).is_pending(), "{mode}");
        stage.finish(0).await;
        assert!(response.is_woken(), "{mode}");
        assert!(!ready.is_woken(), "{mode}: nobody has the response yet");
        assert!(matches!(response.poll(), Poll::Ready(Ok(0))), "{mode}");
        assert!(ready.is_woken(), "{mode}");
        assert!(matches!(poll_ready(&mut ready), Poll::Ready(Ok(()))), "{mode}");
        assert!(matches!(poll_ready(&mut ready), Poll::Ready(Ok(()))), "{mode}: ready stays ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_is_given_back() {
    for (mode, layer) in modes(1) {
        let mut service = layer.capacity(1).layer(Stage::default().service());
        let mut other = service.clone();
        service.ready().await.expect("ready");
        let mut ready = spawn(());
        assert!(ready.enter(|cx, _| other.poll_ready(cx)).is_pending(), "{mode}");
        assert!(
            ready.enter(|cx, _| service.clone().poll_ready(cx)).is_pending(),
            "{mode}: a clone is not ready"
        );
        drop(service);
        assert!(ready.is_woken(), "{mode}");
        assert!(ready.enter(|cx, _| other.poll_ready(cx)).is_ready(), "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_delivery_whose_response_is_dropped_is_skipped() {
    for (mode, layer) in modes(1) {
        let stage = Stage::default();
        let mut service = layer.capacity(3).layer(stage.service());
        let first = call(&mut service, message(0, 0)).await;
        let second = call(&mut service, message(1, 0)).await;
        let third = call(&mut service, message(2, 0)).await;
        second.abort();
        quiet().await;
        stage.finish(0).await;
        assert_eq!(stage.started(), [0, 2], "{mode}");
        stage.finish(2).await;
        first.await.expect("no panic").expect("an answer");
        third.await.expect("no panic").expect("an answer");
        let mut reserved = Vec::new();
        for _ in 0..3 {
            let clone = service.clone();
            service.ready().await.expect("all three places are free");
            reserved.push(std::mem::replace(&mut service, clone));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_delivery_whose_response_is_dropped_is_dropped_and_the_lane_goes_on() {
    for (mode, layer) in modes(1) {
        let stage = Stage::default();
        let mut service = layer.capacity(2).layer(stage.service());
        let first = call(&mut service, message(0, 0)).await;
        let second = call(&mut service, message(1, 0)).await;
        let mut ready = spawn(());
        assert!(ready.enter(|cx, _| service.poll_ready(cx)).is_pending());
        first.abort();
        quiet().await;
        assert_eq!(stage.dropped(), [0], "{mode}");
        assert_eq!(stage.started(), [0, 1], "{mode}");
        assert!(ready.is_woken(), "{mode}: its place is free");
        stage.finish(1).await;
        second.await.expect("no panic").expect("an answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_never_polled_is_handled_by_a_task_and_its_drop_frees_the_place() {
    for (mode, layer) in modes(1).into_iter().filter(|(mode, _)| !mode.ends_with("inline")) {
        let stage = Stage::default();
        let mut service = layer.capacity(1).layer(stage.service());
        let response = service.ready().await.expect("ready").call(message(0, 0));
        stage.finish(0).await;
        assert_eq!(stage.dropped(), [0], "{mode}");
        assert!(spawn(()).enter(|cx, _| service.poll_ready(cx)).is_pending(), "{mode}");
        drop(response);
        service.ready().await.expect("ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_waits_for_the_inner_service_can_be_cancelled() {
    for (mode, layer) in modes(1) {
        let stage = Stage::default();
        stage.change(|state| state.not_ready = true);
        let mut service = layer.capacity(1).layer(stage.service());
        let response = call(&mut service, message(0, 0)).await;
        response.abort();
        quiet().await;
        service.ready().await.expect("its place is free");
        stage.change(|state| state.not_ready = false);
        let response = call(&mut service, message(1, 0)).await;
        stage.finish(1).await;
        response.await.expect("no panic").expect("an answer");
        assert_eq!(stage.started(), [1], "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_reaches_its_own_caller_and_the_lane_goes_on() {
    quietly();
    for trick in [Trick::PanicsInCall, Trick::PanicsInPoll, Trick::PanicsInReady] {
        for (mode, layer) in modes(1) {
            let stage = Stage::new(&[(0, trick)]);
            if trick == Trick::PanicsInReady {
                next_ready(&stage, trick);
            }
            let mut service = layer.layer(stage.service());
            let first = call(&mut service, message(0, 0)).await;
            let clones = stage.clones();
            let panic = first.await.expect_err("a panic").into_panic();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"planned"), "{mode}");
            let second = call(&mut service, message(1, 0)).await;
            stage.finish(1).await;
            assert_eq!(second.await.expect("no panic").expect("an answer"), 1, "{mode}");
            let fresh = stage.clones() - clones + usize::from(!mode.ends_with("inline"));
            assert_eq!(
                fresh.min(1),
                usize::from(trick != Trick::PanicsInPoll || !mode.ends_with("inline")),
                "{mode}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_tells_all_who_wait_and_all_who_come() {
    for (mode, layer) in modes(1) {
        let stage = Stage::default();
        let mut service = layer.capacity(3).layer(stage.service());
        let first = call(&mut service, message(0, 0)).await;
        let queued = [call(&mut service, message(1, 0)).await, call(&mut service, message(2, 0)).await];
        let mut waits = spawn(());
        let mut other = service.clone();
        assert!(waits.enter(|cx, _| other.poll_ready(cx)).is_pending());
        next_ready(&stage, Trick::FailsReady);
        stage.finish(0).await;
        assert_eq!(first.await.expect("no panic").expect("it ran before"), 0, "{mode}");
        for response in queued {
            let error = response.await.expect("no panic").expect_err("failed");
            assert!(error.is::<SharedError>(), "{mode}: {error}");
            assert_eq!(error.to_string(), "worn out");
        }
        assert!(waits.is_woken(), "{mode}");
        assert!(matches!(waits.enter(|cx, _| other.poll_ready(cx)), Poll::Ready(Err(_))), "{mode}");
        assert_eq!(service.ready().await.expect_err("failed").to_string(), "worn out", "{mode}");
        assert_eq!(stage.started(), [0], "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_reserved_before_the_failure_is_answered_with_it() {
    for (mode, layer) in modes(1) {
        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        let mut early = service.clone();
        early.ready().await.expect("ready");
        next_ready(&stage, Trick::FailsReady);
        let first = call(&mut service, message(0, 0)).await;
        assert!(first.await.expect("no panic").is_err(), "{mode}");
        let late = tokio::spawn(early.call(message(1, 0)));
        assert_eq!(late.await.expect("no panic").expect_err("failed").to_string(), "worn out", "{mode}");
    }
}

#[test]
fn a_runtime_that_ends_closes_what_is_in_the_lanes_and_another_starts_them_anew() {
    for (mode, layer) in modes(2).into_iter().filter(|(mode, _)| !mode.ends_with("inline")) {
        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        let runtime = || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.expect("a runtime")
        };
        let first = runtime();
        let responses = first.block_on(async {
            let mut responses = Vec::new();
            for id in 0..6 {
                responses.push(service.ready().await.expect("ready").call(message(id, id % 3)));
            }
            quiet().await;
            responses
        });
        assert!(!stage.started().is_empty(), "{mode}");
        drop(first);
        let second = runtime();
        second.block_on(async {
            for response in responses {
                assert!(response.await.expect_err("closed").is::<Closed>(), "{mode}");
            }
            let response = call(&mut service, message(7, 7)).await;
            stage.finish(7).await;
            assert_eq!(response.await.expect("no panic").expect("an answer"), 7, "{mode}");
        });
    }
}

/// Never ready, and a nuisance to the end.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("planned");
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_that_panics_when_it_is_dropped_keeps_no_lane_and_no_place() {
    quietly();
    for (mode, layer) in modes(1) {
        for passes in [false, true] {
            let mut service =
                layer.clone().capacity(1).layer(service_fn(move |message: Message| async move {
                    if message.payload()[0] == 0 {
                        let _nuisance = PanicsWhenDropped;
                        if passes {
                            message.turn().pass();
                        }
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, BoxError>(())
                }));
            let mut response = Box::pin(service.ready().await.expect("ready").call(message(0, 0)));
            assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            quiet().await;
            let _inline_it_panics_here = catch_unwind(AssertUnwindSafe(|| drop(response)));
            quiet().await;
            let next = async { service.ready().await.expect("ready").call(message(1, 0)).await };
            let answer = tokio::time::timeout(Duration::from_secs(1), next).await;
            assert!(matches!(answer, Ok(Ok(()))), "{mode}, passes {passes}: {answer:?}");
        }
    }
}
