//! What observers hear of lanes.

mod stage;

use std::sync::Arc;

use parking_lot::Mutex;
use stage::{Stage, call, modes};
use tower::Layer as _;
use tower_mq_delivery::{Capabilities, Event, Generation, Message, Origin};
use tower_mq_partition::LaneKey;

#[tokio::test(start_paused = true)]
async fn a_lane_tells_how_many_wait_when_one_comes_and_when_it_begins() {
    for (mode, layer) in modes(2) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let origin = Origin::new("orders", "test", 8, Capabilities::unknown());
        let hears = told.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            if let Event::Lane { lane, waiting } = event {
                hears.lock().push((*lane, *waiting));
            }
        }));
        let generation = Generation::first(Arc::new(origin));
        let message = |id, key: u8| {
            let message = Message::builder(vec![id]).key(vec![key]);
            message.generation(generation.clone()).build()
        };
        let key = |lane| (0..=u8::MAX).find(|key| LaneKey::of([*key]).lane(2) == Some(lane)).expect("a key");
        let (one, two) = (key(0), key(1));

        let stage = Stage::default();
        let mut service = layer.layer(stage.service());
        let mut responses = Vec::new();
        for (id, key) in [(0, one), (1, one), (2, two), (3, one)] {
            responses.push(call(&mut service, message(id, key)).await);
        }
        // Unheard of: nobody listens at its source.
        responses.push(call(&mut service, stage::message(4, one)).await);
        for id in [0, 1, 3, 2, 4] {
            stage.finish(id).await;
        }
        for response in responses {
            response.await.expect("no panic").expect("an answer");
        }
        let expected = match mode {
            "by_key" | "by_key inline" => vec![
                (0, 1),
                (0, 0),
                (0, 1),
                (1, 1),
                (1, 0),
                (0, 2),
                (0, 2), // With the one that nobody is told of.
                (0, 1),
            ],
            _ => Vec::new(),
        };
        assert_eq!(*told.lock(), expected, "{mode}");
    }
}
