//! Random deliveries and times, against a small model.

use std::{collections::VecDeque, time::Duration};

use proptest::prelude::*;
use tokio::time::{Instant, advance};
use tokio_test::task::{self, Spawn};
use tower::Service;
use tower_mq_delivery::{Circuit, Message, Outcome};
use tower_mq_testing::{Call, GatedFuture};

use super::{RETRY, Source, gated, is_ready};
use crate::{BreakerLayer, future::ResponseFuture};

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
enum End {
    Good,
    Bad,
    Released,
    Dropped,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A clone asks for readiness, and is called if it is ready.
    Call,
    /// One of those that run ends.
    End(usize, End),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![4 => Just(End::Good), 5 => Just(End::Bad), 1 => Just(End::Released), 1 => Just(End::Dropped)];
    let step = prop_oneof![
        5 => Just(Step::Call),
        5 => (0..4usize, end).prop_map(|(which, end)| Step::End(which, end)),
        2 => (0..250u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..120)
}

#[derive(Debug)]
enum Phase {
    Closed,
    Open(Instant),
    Probing,
}

struct Model {
    window: usize,
    minimum: usize,
    phase: Phase,
    pauses: u32,
    life: u32,
    last: VecDeque<bool>,
    heard: Vec<Circuit>,
}

impl Model {
    /// `Some`: it is let through, in this life of the circuit.
    fn enter(&mut self) -> Option<u32> {
        match self.phase {
            Phase::Open(until) if Instant::now() >= until => {
                self.phase = Phase::Probing;
                self.heard.push(Circuit::HalfOpen);
            }
            Phase::Closed => {}
            _ => return None,
        }
        Some(self.life)
    }

    fn end(&mut self, life: u32, end: End) {
        if life != self.life {
            return;
        }
        match (&self.phase, end) {
            (Phase::Probing, End::Good) => {
                self.phase = Phase::Closed;
                (self.pauses, self.life) = (0, self.life + 1);
                self.last.clear();
                self.heard.push(Circuit::Closed);
            }
            (Phase::Probing, End::Bad) => self.open(),
            (Phase::Probing, _) => self.phase = Phase::Open(Instant::now()),
            (Phase::Closed, End::Good | End::Bad) => {
                self.last.push_back(matches!(end, End::Bad));
                if self.last.len() > self.window {
                    self.last.pop_front();
                }
                let failed = self.last.iter().filter(|failed| **failed).count();
                if matches!(end, End::Bad) && self.last.len() >= self.minimum && 2 * failed >= self.last.len()
                {
                    self.life += 1;
                    self.open();
                }
            }
            _ => {}
        }
    }

    fn open(&mut self) {
        self.pauses += 1;
        let pause = 100 * MS * (1 << (self.pauses - 1).min(3));
        self.phase = Phase::Open(Instant::now() + pause);
        self.heard.push(Circuit::Open);
    }
}

type Running = (Spawn<ResponseFuture<GatedFuture<Message>>>, Call<Message>, u32);

async fn play(window: u32, minimum: u32, steps: Vec<Step>) {
    let layer =
        BreakerLayer::new().window(window).minimum(minimum).pause(100 * MS, 800 * MS).without_jitter();
    let (source, (service, gate)) = (Source::new(), gated(&layer));
    let (window, minimum) = (window as usize, minimum as usize);
    let (phase, last, heard) = (Phase::Closed, VecDeque::new(), Vec::new());
    let mut model = Model { window, minimum, phase, pauses: 0, life: 0, last, heard };
    let mut running: Vec<Running> = Vec::new();
    for step in steps {
        match step {
            Step::Call => {
                let mut clone = service.clone();
                let (ready, expected) = (is_ready(&mut clone), model.enter());
                assert_eq!(ready, expected.is_some(), "{:?}", model.phase);
                if let Some(life) = expected {
                    let mut response = task::spawn(clone.call(source.message()));
                    assert!(response.poll().is_pending());
                    running.push((response, gate.next().await, life));
                }
            }
            Step::End(which, end) if which < running.len() => {
                let (mut response, call, life) = running.swap_remove(which);
                match end {
                    End::Dropped => drop(response),
                    _ => {
                        call.answer(match end {
                            End::Bad => RETRY,
                            End::Released => Outcome::Release,
                            _ => Outcome::Ack,
                        });
                        assert!(response.poll().is_ready());
                    }
                }
                model.end(life, end);
            }
            Step::End(..) => {}
            Step::Wait(ms) => advance(MS * ms as u32).await,
        }
        assert_eq!(source.heard(), std::mem::take(&mut model.heard));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_the_model_does((window, minimum) in (1..8u32).prop_flat_map(|w| (Just(w), 1..=w)), steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(play(window, minimum, steps));
    }
}
