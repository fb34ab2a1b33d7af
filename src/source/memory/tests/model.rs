//! The broker against a model that is slow and obvious.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;
use tower_mq_delivery::{Delivery, Message, Outcome, Settlement};

use super::{super::*, *};

const CONSUMERS: usize = 2;
const WINDOW: usize = 3;
const MOST_ATTEMPTS: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    Publish(Option<u8>),
    Take(usize),
    Settle { consumer: usize, which: usize, outcome: Outcome },
    Drop { consumer: usize, which: usize },
    SettleStale(usize),
    Advance(u64),
    DropConnection(usize),
    DisconnectAll,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Ack),
        2 => Just(Outcome::Release),
        2 => (0..4u64).prop_map(|seconds| Outcome::Retry { after: Duration::from_secs(seconds) }),
        1 => Just(Outcome::reject("bad")),
    ];
    prop_oneof![
        6 => prop::option::weighted(0.8, 0..3u8).prop_map(Step::Publish),
        8 => (0..CONSUMERS).prop_map(Step::Take),
        6 => (0..CONSUMERS, 0..WINDOW, outcome)
            .prop_map(|(consumer, which, outcome)| Step::Settle { consumer, which, outcome }),
        1 => (0..CONSUMERS, 0..WINDOW).prop_map(|(consumer, which)| Step::Drop { consumer, which }),
        1 => (0..WINDOW).prop_map(Step::SettleStale),
        2 => (1..4u64).prop_map(Step::Advance),
        1 => (0..CONSUMERS).prop_map(Step::DropConnection),
        1 => Just(Step::DisconnectAll),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Ready,
    Held(usize),
    Delayed(Instant),
    Dead,
    Gone,
}

#[derive(Debug)]
struct Stored {
    key: Option<u8>,
    attempt: u32,
    redelivered: bool,
    place: Place,
}

/// All messages that there ever were, in order.
#[derive(Debug, Default)]
struct Model {
    grouped: bool,
    messages: Vec<Stored>,
    dead: Vec<usize>,
}

impl Model {
    fn count(&self, is: impl Fn(Place) -> bool) -> usize {
        self.messages.iter().filter(|message| is(message.place)).count()
    }

    fn wake(&mut self) {
        let now = Instant::now();
        for message in &mut self.messages {
            if matches!(message.place, Place::Delayed(until) if until <= now) {
                message.place = Place::Ready;
            }
        }
    }

    fn take(&mut self, consumer: usize) -> Option<usize> {
        self.wake();
        if self.count(|place| place == Place::Held(consumer)) >= WINDOW {
            return None;
        }
        let live = |message: &Stored| !matches!(message.place, Place::Dead | Place::Gone);
        let id = (0..self.messages.len()).find(|&id| {
            let message = &self.messages[id];
            let blocked = self.grouped
                && message.key.is_some()
                && self.messages[..id].iter().any(|other| other.key == message.key && live(other));
            message.place == Place::Ready && !blocked
        })?;
        self.messages[id].place = Place::Held(consumer);
        Some(id)
    }

    fn settle(&mut self, id: usize, outcome: &Outcome) {
        let message = &mut self.messages[id];
        message.place = match outcome {
            Outcome::Ack => Place::Gone,
            Outcome::Retry { after } if message.attempt < MOST_ATTEMPTS => {
                message.attempt += 1;
                message.redelivered = true;
                Place::Delayed(Instant::now() + *after)
            }
            Outcome::Retry { .. } | Outcome::Reject { .. } => {
                self.dead.push(id);
                Place::Dead
            }
            _ => {
                message.redelivered = true;
                Place::Ready
            }
        };
    }

    fn lose(&mut self, lost: impl Fn(usize) -> bool) {
        for message in &mut self.messages {
            if matches!(message.place, Place::Held(consumer) if lost(consumer)) {
                (message.place, message.redelivered) = (Place::Ready, true);
            }
        }
    }
}

fn id(delivery: &Delivery) -> usize {
    text(delivery).parse().expect("the payload is the id")
}

async fn run(grouped: bool, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let broker = Broker::new();
    let queue = || broker.queue("orders").window(WINDOW).max_attempts(MOST_ATTEMPTS);
    if grouped {
        queue().grouped().declare();
    }
    let mut model = Model { grouped, ..Model::default() };
    let mut consumers: Vec<_> = (0..CONSUMERS).map(|_| queue().consume()).collect();
    let mut held: Vec<Vec<Delivery>> = (0..CONSUMERS).map(|_| Vec::new()).collect();
    let mut stale = Vec::new();
    for step in steps {
        match step {
            Step::Publish(key) => {
                let message = Message::builder(model.messages.len().to_string());
                broker.publish("orders", message.maybe_key(key.map(|k| vec![k])).build()).expect("open");
                model.messages.push(Stored { key, attempt: 1, redelivered: false, place: Place::Ready });
            }
            Step::Take(consumer) => {
                let (taken, expected) = (next(&mut consumers[consumer]), model.take(consumer));
                prop_assert_eq!(taken.as_ref().map(id), expected);
                if let Some(delivery) = taken {
                    let stored = &model.messages[id(&delivery)];
                    prop_assert_eq!(delivery.message().attempt(), Some(stored.attempt));
                    prop_assert_eq!(delivery.message().redelivered(), stored.redelivered);
                    held[consumer].push(delivery);
                }
            }
            Step::Settle { consumer, which, outcome } if which < held[consumer].len() => {
                let delivery = held[consumer].remove(which);
                model.settle(id(&delivery), &outcome);
                prop_assert_eq!(settle(delivery, outcome), Settlement::Confirmed);
            }
            Step::Drop { consumer, which } if which < held[consumer].len() => {
                let delivery = held[consumer].remove(which);
                model.settle(id(&delivery), &Outcome::Release);
            }
            Step::SettleStale(which) if which < stale.len() => {
                prop_assert_eq!(settle(stale.remove(which), Outcome::Ack), Settlement::Stale);
            }
            Step::Settle { .. } | Step::Drop { .. } | Step::SettleStale(_) => {}
            Step::Advance(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
            Step::DropConnection(consumer) => {
                consumers[consumer].drop_connection();
                stale.append(&mut held[consumer]);
                model.lose(|lost| lost == consumer);
            }
            Step::DisconnectAll => {
                broker.disconnect_consumers();
                held.iter_mut().for_each(|held| stale.append(held));
                model.lose(|_| true);
            }
        }
        model.wake();
        let depth = broker.depth("orders");
        prop_assert_eq!(depth.ready, model.count(|place| place == Place::Ready));
        prop_assert_eq!(depth.unsettled, model.count(|place| matches!(place, Place::Held(_))));
        prop_assert_eq!(depth.delayed, model.count(|place| matches!(place, Place::Delayed(_))));
        prop_assert!(held.iter().all(|held| held.len() <= WINDOW));
    }
    let dead = all(&mut broker.queue("orders.dead").consume());
    prop_assert_eq!(dead.iter().map(id).collect::<Vec<_>>(), model.dead);
    Ok(())
}

proptest! {
    #[test]
    fn the_broker_does_what_its_model_does(grouped: bool, steps in prop::collection::vec(step(), 1..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run(grouped, steps))?;
    }
}
