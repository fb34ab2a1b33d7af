mod contract;
mod endings;
mod layer;
mod model;
mod pausing;
mod waiting;

use std::{future::poll_fn, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio_test::task;
use tower::{Layer, Service, ServiceExt};
use tower_mq_delivery::{BoxError, Capabilities, Circuit, Event, Generation, Message, Origin, Outcome};
use tower_mq_testing::{Gate, Gated, gate};

use crate::{Breaker, BreakerLayer};

const SECOND: Duration = Duration::from_secs(1);
const RETRY: Outcome = Outcome::Retry { after: SECOND };

/// Opens at two failures of four; pauses for 1, 2, 4, 8, 8, … seconds.
fn quick() -> BreakerLayer {
    BreakerLayer::new().window(4).minimum(2).pause(SECOND, 8 * SECOND).without_jitter()
}

/// A source of messages, and what it heard of the circuit.
struct Source {
    generation: Arc<Generation>,
    heard: Arc<Mutex<Vec<Circuit>>>,
}

impl Source {
    fn new() -> Self {
        let origin = Arc::new(Origin::new("orders", "test", 8, Capabilities::unknown()));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = heard.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            if let Event::Circuit(circuit) = event {
                told.lock().push(*circuit);
            }
        }));
        Self { generation: Generation::first(origin), heard }
    }

    fn message(&self) -> Message {
        Message::builder("").generation(self.generation.clone()).build()
    }

    fn heard(&self) -> Vec<Circuit> {
        std::mem::take(&mut *self.heard.lock())
    }
}

/// The layer over a handler whose calls are completed by hand.
fn gated(layer: &BreakerLayer) -> (Breaker<Gated<Message>>, Gate<Message>) {
    let (handler, gate) = gate();
    (layer.layer(handler), gate)
}

fn is_ready<S>(service: &mut S) -> bool
where
    S: Service<Message>,
    S::Error: std::fmt::Debug,
{
    let mut ready = task::spawn(poll_fn(|cx| service.poll_ready(cx)));
    match ready.poll() {
        std::task::Poll::Ready(ready) => {
            ready.expect("it does not fail");
            true
        }
        std::task::Poll::Pending => false,
    }
}

/// One call from readiness to its end.
async fn call(
    service: &mut Breaker<Gated<Message>>,
    gate: &Gate<Message>,
    source: &Source,
    outcome: Outcome,
) {
    let response = service.ready().await.expect("ready").call(source.message());
    gate.next().await.answer(outcome);
    response.await.expect("answered");
}

/// Fails until the circuit is open.
async fn open(service: &mut Breaker<Gated<Message>>, gate: &Gate<Message>, source: &Source) {
    while is_ready(service) {
        call(service, gate, source, RETRY).await;
    }
}

fn down() -> BoxError {
    "down".into()
}
