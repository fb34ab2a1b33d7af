mod answers;
mod closing;
mod contract;
mod grouped;
mod lanes;
mod leaving;
mod model;
mod not_handled;
mod readiness;

use std::{cell::Cell, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio_test::task::{Spawn, spawn};
use tower::{Service, ServiceExt};
use tower_mq_delivery::{
    Batch, BoxError, Capabilities, ClosedBy, Event, Generation, Message, MessageBuilder, Origin, Turns,
};
use tower_mq_testing::Call;

use crate::future::ResponseFuture;

type Handled = Call<Batch<Message>>;
type Answer = Spawn<ResponseFuture>;

/// A source, as messages know it.
struct Queue {
    generation: Arc<Generation>,
    events: Arc<Mutex<Vec<String>>>,
}

impl Queue {
    fn new(window: usize) -> Self {
        let origin = Arc::new(Origin::new("orders", "test", window, Capabilities::unknown()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            heard.lock().push(match event {
                Event::Gathered { batch } => format!("gathered {}", batch.len()),
                Event::NotHandled { message } => {
                    format!("not handled {}", String::from_utf8_lossy(message.payload()))
                }
                Event::Panicked { .. } => "panicked".to_owned(),
                Event::Warned { warning } => (*warning).to_owned(),
                other => format!("{other:?}"),
            });
        }));
        Self { generation: Generation::first(origin), events }
    }

    fn origin(&self) -> &Origin {
        self.generation.origin()
    }

    fn lane(&self) -> Lane {
        Lane { generation: self.generation.clone(), turns: Turns::new(), taken: Cell::new(0) }
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().clone()
    }
}

/// A driver or lane that takes messages of a source.
struct Lane {
    generation: Arc<Generation>,
    turns: Arc<Turns>,
    taken: Cell<u64>,
}

impl Lane {
    fn message(&self, text: impl Into<Vec<u8>>) -> Message {
        self.take(Message::builder(text.into()))
    }

    fn take(&self, message: MessageBuilder) -> Message {
        self.taken.set(self.taken.get() + 1);
        let mut message = message.generation(self.generation.clone()).build();
        let _detached = message.set_turn(self.turns.turn(self.taken.get()));
        message
    }

    /// Whether the turn of the last message was passed.
    fn goes_on(&self) -> bool {
        self.turns.is_passed(self.taken.get())
    }
}

/// Calls the service as a driver does, and looks once for an answer.
async fn join<S>(service: &mut S, message: Message) -> Answer
where
    S: Service<Message, Future = ResponseFuture>,
    S::Error: std::fmt::Debug,
{
    let mut answer = spawn(service.ready().await.expect("ready").call(message));
    assert!(answer.poll().is_pending(), "it is answered by its batch");
    answer
}

/// Lets the tasks that are under way come to rest. The clock stands.
async fn rest() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// The payloads of a batch, and why it was closed.
fn batch(call: &Handled) -> (Vec<String>, ClosedBy) {
    let text = |message: &Message| String::from_utf8_lossy(message.payload()).into_owned();
    (call.request().iter().map(text).collect(), call.request().closed_by())
}

/// The answer, to a member that was woken.
fn answered(answer: &mut Answer) -> Result<String, BoxError> {
    assert!(answer.is_woken(), "it was not woken");
    match answer.poll() {
        std::task::Poll::Ready(answer) => answer.map(|outcome| outcome.name().to_owned()),
        std::task::Poll::Pending => panic!("it is not answered"),
    }
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
