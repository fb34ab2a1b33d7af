//! How many run, where they go, and who ends.

mod stage;

use std::{cell::Cell, sync::Arc};

use stage::{Layer, Stage, Trick, call, message, modes, quiet};
use tower::{Layer as _, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Delivery, Message};
use tower_mq_partition::{LaneKey, NoRuntime, Partition, PartitionLayer};
use tower_mq_testing::contract;

#[tokio::test(start_paused = true)]
async fn exactly_n_run_under_load() {
    for (mode, layer) in modes(3) {
        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        let mut responses = Vec::new();
        for id in 0..12 {
            responses.push(call(&mut service, message(id, id)).await);
        }
        while stage.dropped().len() < 10 {
            let (started, dropped) = (stage.started(), stage.dropped());
            // With lanes, keys are not spread evenly: as many run as there are lanes with something to do.
            let lanes: std::collections::HashSet<_> = (0..12u8)
                .filter(|id| !dropped.contains(id))
                .map(|id| {
                    if mode.starts_with("by_key") {
                        LaneKey::of([id]).lane(3).expect("a lane")
                    } else {
                        id.into()
                    }
                })
                .collect();
            assert_eq!(started.len() - dropped.len(), lanes.len().min(3), "{mode}: {started:?}, {dropped:?}");
            let next = started.iter().find(|id| !dropped.contains(id)).expect("one that runs");
            stage.finish(*next).await;
        }
        for id in 0..12 {
            stage.finish(id).await;
        }
        for (id, response) in (0..).zip(responses) {
            assert_eq!(response.await.expect("no panic").expect("an answer"), id, "{mode}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_runs_one_at_a_time_in_the_order_of_calls_also_of_clones() {
    for (mode, layer) in modes(4).into_iter().take(4) {
        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        let mut responses = Vec::new();
        for id in 0..6 {
            // What a layer does that moves its inner service into a future.
            let clone = service.clone();
            let mut moved = std::mem::replace(&mut service, clone);
            responses.push(call(&mut moved, message(id, 7)).await);
        }
        for id in 0..6 {
            assert_eq!(stage.started(), (0..=id).collect::<Vec<_>>(), "{mode}");
            stage.finish(id).await;
        }
        for response in responses {
            response.await.expect("no panic").expect("an answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_no_key_goes_round() {
    for (mode, layer) in modes(3) {
        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        for id in 0..4 {
            drop(call(&mut service, message(id, None)).await);
        }
        assert_eq!(stage.started(), [0, 1, 2], "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_key_is_a_key() {
    let stage = Stage::default();
    let mut service = Layer::per_key(4).layer(stage.service());
    for id in 0..3 {
        let message = Message::builder(vec![id]).key("").build();
        drop(call(&mut service, message).await);
    }
    assert_eq!(stage.started(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_anything_in_the_message() {
    for (mode, layer) in modes(4).into_iter().take(4) {
        let stage = Stage::default();
        let layer = layer.with(|message| LaneKey::maybe(message.id().as_deref()));
        let mut service = layer.layer(stage.service());
        for id in 0..3 {
            let message = Message::builder(vec![id]).key(vec![id]).id("the same").build();
            drop(call(&mut service, message).await);
        }
        assert_eq!(stage.started(), [0], "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_lets_the_lanes_finish_and_end() {
    for (mode, layer) in modes(2) {
        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        let mut responses = Vec::new();
        for id in 0..5 {
            responses.push(call(&mut service, message(id, 1)).await);
        }
        drop(service);
        quiet().await;
        for id in 0..5 {
            stage.finish(id).await;
        }
        for response in responses {
            response.await.expect("no panic").expect("an answer");
        }
        quiet().await;
        stage.change(|state| state.turns.clear());
        assert!(stage.is_deserted(), "{mode}: a lane goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_that_never_started_need_no_end() {
    for (mode, layer) in modes(2) {
        let stage = Stage::default();
        drop(layer.layer(stage.service()));
        assert!(stage.is_deserted(), "{mode}");
        assert_eq!(stage.clones(), 0, "{mode}: nothing is cloned before there is a delivery");
    }
}

#[test]
fn a_call_outside_of_a_runtime_is_refused() {
    for (mode, layer) in modes(2) {
        let mut service =
            layer.layer(service_fn(async |message: Message| Ok::<_, BoxError>(message.payload().len())));
        let mut task = tokio_test::task::spawn(());
        let ready = task.enter(|cx, _| service.poll_ready(cx));
        assert!(matches!(ready, std::task::Poll::Ready(Ok(()))));
        let response = service.call(message(1, 1));
        let mut response = tokio_test::task::spawn(response);
        let answer = tokio_test::assert_ready!(response.poll());
        match mode.ends_with("inline") {
            true => assert_eq!(answer.expect("needs no runtime"), 1),
            false => assert!(answer.expect_err("no runtime").is::<NoRuntime>(), "{mode}"),
        }
    }
}

#[test]
#[should_panic(expected = "at least 1 lane")]
fn no_lanes_at_all_are_refused() {
    let _ = PartitionLayer::<Message>::by_key(0);
}

#[tokio::test]
#[should_panic(expected = "before it was ready")]
async fn a_call_without_readiness_is_refused() {
    let mut service = Layer::by_key(1).layer(Stage::default().service());
    drop(service.call(message(1, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_capacity_below_n_is_raised_to_n() {
    for (mode, layer) in modes(3) {
        let stage = Stage::default();
        let mut service = layer.capacity(1).layer(stage.service());
        for id in 0..3 {
            drop(call(&mut service, message(id, None)).await);
        }
        assert_eq!(stage.started(), [0, 1, 2], "{mode}");
    }
}

#[test]
fn any_number_of_workers_may_be_asked_for() {
    let service = || service_fn(async |_: Message| Ok::<_, BoxError>(()));
    for layer in [PartitionLayer::per_key(usize::MAX), PartitionLayer::unordered(usize::MAX)] {
        let _ = layer.layer(service());
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_passed_once_the_delivery_is_queued() {
    for (mode, layer) in modes(2) {
        let stage = Stage::new(&[(1, Trick::PanicsInCall)]);
        let mut service = layer.layer(stage.service());
        let turns = tower_mq_delivery::Turns::new();
        let mut request = message(0, 1);
        let _detached = request.set_turn(turns.turn(1));
        let response = service.ready().await.expect("ready").call(request);
        assert!(turns.is_passed(1), "{mode}");
        assert!(!turns.is_passed(2), "{mode}");
        drop(tokio::spawn(response));
        quiet().await;
        // Behind another one, too.
        let mut request = message(2, 1);
        let _detached = request.set_turn(turns.turn(2));
        let _waits = service.ready().await.expect("ready").call(request);
        assert!(turns.is_passed(2), "{mode}");
        assert_ne!(stage.turn(0).owner(), turns.turn(1).owner(), "{mode}: the lane has turns of its own");
        assert_ne!(stage.turn(0).owner(), 0, "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_layer_keeps_the_contract() {
    for (mode, layer) in modes(2) {
        if let Err(fault) = contract::find_fault::<Message, _>(layer.capacity(3)).await {
            panic!("{mode}: {fault}");
        }
    }
    contract::check::<Delivery, _>(PartitionLayer::by_key(2).capacity(3)).await;
    contract::check::<Delivery, _>(PartitionLayer::per_key(2).capacity(3).inline()).await;
}

#[test]
fn nothing_need_be_sync_and_everything_can_be_shown() {
    fn is_send<T: Send>(shown: T) -> T {
        shown
    }
    #[derive(Clone, Debug)]
    struct NotClone;
    let cell = Cell::new(0);
    let handler = service_fn(move |message: Message| {
        cell.set(cell.get() + 1);
        let held = Cell::new(message.payload().len());
        async move {
            tokio::task::yield_now().await;
            Ok::<_, BoxError>(Cell::new(held.get()))
        }
    });
    const LAYER: PartitionLayer<Message> = PartitionLayer::by_key(4).capacity(16).inline();
    let layer = LAYER.clone();
    let service: Partition<_, Message> = is_send(layer.layer(handler));
    assert!(format!("{layer:?} {service:?} {NotClone:?}").contains("capacity: 16"));
    _ = Arc::new(service);
}
