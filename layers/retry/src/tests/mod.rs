mod batch;
mod contract;
mod endings;
mod in_place;
mod limits;
mod order;
mod park;
mod requeue;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tower::Layer;
use tower_mq_delivery::{BoxError, Capabilities, Event, Failure, Generation, Message, Origin, Outcome, Work};
use tower_mq_testing::{Call, Gate, Gated, gate};

use crate::{Backoff, Retry, RetryLayer};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// 10 ms, 20 ms, 40 ms, … up to 1 s.
fn backoff() -> Backoff {
    Backoff::exponential(10 * MS, 1_000 * MS).without_jitter()
}

/// An hour each time.
fn hourly() -> Backoff {
    Backoff::exponential(HOUR, HOUR).without_jitter()
}

/// A source of messages, and what it heard of them.
struct Source {
    generation: Arc<Generation>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Source {
    fn new() -> Self {
        Self::of(Capabilities::unknown())
    }

    fn of(capabilities: Capabilities) -> Self {
        let origin = Arc::new(Origin::new("orders", "test", 8, capabilities));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = heard.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            told.lock().push(match event {
                Event::Retried { message, after } => {
                    format!("{} retried after {after:?}", text(message))
                }
                Event::Parked { message } => format!("{} parked", text(message)),
                Event::Resumed { message } => format!("{} resumed", text(message)),
                Event::Warned { warning } => format!("warned: {warning}"),
                other => format!("{other:?}"),
            });
        }));
        Self { generation: Generation::first(origin), heard }
    }

    fn origin(&self) -> &Origin {
        self.generation.origin()
    }

    fn message(&self, text: &str) -> Message {
        Message::builder(text.to_owned())
            .key(text.to_owned())
            .attempt(1)
            .generation(self.generation.clone())
            .build()
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock())
    }
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.payload()).into_owned()
}

fn texts<W: Work>(call: &Call<W>) -> Vec<String> {
    call.request().messages().iter().map(text).collect()
}

/// The layer over a handler whose calls are completed by hand.
fn gated<W: Work>(layer: &RetryLayer) -> (Retry<Gated<W>>, Gate<W>) {
    let (handler, gate) = gate();
    (layer.layer(handler), gate)
}

fn rejected() -> BoxError {
    Failure::reject("never").into()
}

#[track_caller]
fn error(answer: Result<Outcome, BoxError>) -> String {
    answer.expect_err("an error goes out").to_string()
}
