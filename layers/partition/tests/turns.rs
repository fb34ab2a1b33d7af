//! Layers inside a lane that keep an order of their own, and deliveries that sleep.

mod stage;

use std::time::Duration;

use stage::{Layer, Stage, Trick, call, message, quiet};
use tokio::time::{Instant, sleep};
use tower::{Layer as _, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message};
use tower_mq_partition::{LaneKey, PartitionLayer};

const PASSES: [(u8, Trick); 4] =
    [(0, Trick::Passes), (1, Trick::Passes), (2, Trick::Passes), (3, Trick::Passes)];

#[tokio::test(start_paused = true)]
async fn a_lane_takes_the_next_when_its_turn_is_passed() {
    for layer in [Layer::by_key(1), Layer::by_key(1).inline()] {
        let stage = Stage::new(&PASSES);
        let mut service = layer.layer(stage.service());
        let mut responses = Vec::new();
        for id in 0..4 {
            responses.push(call(&mut service, message(id, 0)).await);
        }
        assert_eq!(stage.started(), [0, 1, 2, 3]);
        let owners = [0, 1, 2, 3].map(|id| stage.turn(id).owner());
        assert!(owners.iter().all(|owner| *owner == owners[0]), "one lane, one owner");
        responses.remove(1).abort();
        quiet().await;
        assert_eq!(stage.dropped(), [1]);
        for id in [3, 0, 2] {
            stage.finish(id).await;
        }
        for response in responses {
            response.await.expect("no panic").expect("an answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_lane_has_turns_of_its_own() {
    for layer in [Layer::by_key(2), Layer::by_key(2).inline(), Layer::per_key(2), Layer::per_key(2).inline()]
    {
        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        let _responses =
            [call(&mut service, message(0, None)).await, call(&mut service, message(1, None)).await];
        assert_ne!(stage.turn(0).owner(), stage.turn(1).owner());
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_turn_is_passed_takes_another_key_and_never_the_same() {
    for layer in [Layer::per_key(1), Layer::per_key(1).inline()] {
        let stage = Stage::new(&PASSES);
        let mut service = layer.layer(stage.service());
        let mut responses = Vec::new();
        for (id, key) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            responses.push(call(&mut service, message(id, key)).await);
        }
        assert_eq!(stage.started(), [0, 2]);
        stage.finish(2).await;
        assert_eq!(stage.started(), [0, 2, 3]);
        stage.finish(0).await;
        assert_eq!(stage.started(), [0, 2, 3, 1]);
        stage.finish(1).await;
        stage.finish(3).await;
        for response in responses {
            response.await.expect("no panic").expect("an answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_delivery_keeps_its_key_and_frees_its_worker() {
    let stage = Stage::new(&[(0, Trick::Parks)]);
    let mut service = Layer::per_key(1).layer(stage.service());
    let mut responses = Vec::new();
    for (id, key) in [(0, 0), (1, 0), (2, 1), (3, 2)] {
        responses.push(call(&mut service, message(id, key)).await);
    }
    assert_eq!(stage.started(), [0, 2], "the key waits, the worker does not");
    stage.wake(0).await;
    stage.finish(2).await;
    assert_eq!(stage.started(), [0, 2], "the one that woke up goes first");
    stage.finish(0).await;
    for id in [3, 1] {
        stage.finish(id).await;
    }
    for response in responses {
        response.await.expect("no panic").expect("an answer");
    }
}

/// A worker whose parked delivery has woken up looks for no work, so it must not be the one who is sent to look.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_busy_with_what_it_parked_leaves_new_work_to_others() {
    for first in [0, 1] {
        let stage = Stage::new(&[(0, Trick::Parks), (1, Trick::Parks)]);
        let mut service = Layer::per_key(2).layer(stage.service());
        let mut responses =
            vec![call(&mut service, message(0, 0)).await, call(&mut service, message(1, 1)).await];
        stage.wake(first).await;
        responses.push(call(&mut service, message(2, 2)).await);
        assert_eq!(stage.started(), [0, 1, 2], "one worker is free, whichever it is");
        stage.wake(1 - first).await;
        responses.push(call(&mut service, message(3, 3)).await);
        assert_eq!(stage.started(), [0, 1, 2]);
        for id in [0, 1, 2, 3] {
            stage.finish(id).await;
        }
        for response in responses {
            response.await.expect("no panic").expect("an answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_busy_worker_lets_go_is_taken_by_another_one() {
    for (trick, hired) in
        [(Trick::Passes, true), (Trick::Passes, false), (Trick::Parks, true), (Trick::Parks, false)]
    {
        let stage = Stage::new(&[(0, trick)]);
        let mut service = Layer::per_key(2).layer(stage.service());
        let mut responses = Vec::new();
        if hired {
            for (id, key) in [(10, 10), (11, 11)] {
                responses.push(call(&mut service, message(id, key)).await);
            }
            stage.finish(10).await;
            stage.finish(11).await;
        }
        let before = stage.started().len();
        // The second one behind the first; whoever works on the first works on the third, too.
        for (id, key) in [(0, 0), (1, 0), (2, 1)] {
            responses.push(call(&mut service, message(id, key)).await);
        }
        assert_eq!(stage.started()[before..], [0, 2]);
        stage.wake(0).await;
        stage.finish(0).await;
        assert_eq!(stage.started()[before..], [0, 2, 1], "one of two works, and there is work ({hired})");
        stage.finish(1).await;
        stage.finish(2).await;
        for response in responses {
            response.await.expect("no panic").expect("an answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_ignores_parking() {
    for layer in [Layer::by_key(1), Layer::by_key(1).inline(), Layer::per_key(1).inline()] {
        let stage = Stage::new(&[(0, Trick::Parks)]);
        let mut service = layer.layer(stage.service());
        let _responses = [call(&mut service, message(0, 0)).await, call(&mut service, message(1, 1)).await];
        assert_eq!(stage.started(), [0]);
        stage.wake(0).await;
        stage.finish(0).await;
        assert_eq!(stage.started(), [0, 1]);
    }
}

/// One key with a tenth of the deliveries, and a slow handler for it. Gives back how long each of the others took,
/// with its key.
async fn hot_key(layer: PartitionLayer<Message>) -> Vec<(u8, Duration)> {
    const HOT: u8 = 0;
    let handler = service_fn(async |message: Message| {
        if message.key().is_some_and(|key| key[..] == [HOT]) {
            sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, BoxError>(())
    });
    let mut service = layer.capacity(256).layer(handler);
    let mut responses = Vec::new();
    // Ended before the hot key has filled the window.
    for n in 0..1_000u32 {
        let key = if n % 10 == 0 { HOT } else { 1 + (n % 97) as u8 };
        let message = Message::builder("").key(vec![key]).build();
        let response = service.ready().await.expect("ready").call(message);
        let called = Instant::now();
        responses.push(tokio::spawn(async move {
            response.await.expect("an answer");
            (key, called.elapsed())
        }));
        sleep(Duration::from_millis(1)).await;
    }
    let mut others = Vec::new();
    for response in responses {
        let (key, took) = response.await.expect("no panic");
        if key != HOT {
            others.push((key, took));
        }
    }
    others
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_holds_up_only_itself() {
    for layer in [PartitionLayer::per_key(8), PartitionLayer::per_key(8).inline()] {
        let mut took: Vec<_> = hot_key(layer).await.into_iter().map(|(_, took)| took).collect();
        took.sort_unstable();
        assert!(took[took.len() * 99 / 100] < Duration::from_millis(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hot_lane_holds_up_only_its_own_keys() {
    let hot = LaneKey::of([0]).lane(8);
    for layer in [PartitionLayer::by_key(8), PartitionLayer::by_key(8).inline()] {
        let (mine, others): (Vec<_>, Vec<_>) =
            hot_key(layer).await.into_iter().partition(|(key, _)| LaneKey::of([*key]).lane(8) == hot);
        assert!(others.iter().all(|(_, took)| *took < Duration::from_millis(2)), "another lane has waited");
        assert!(mine.iter().any(|(_, took)| *took > Duration::from_millis(50)), "the hot lane is not hot");
    }
}
