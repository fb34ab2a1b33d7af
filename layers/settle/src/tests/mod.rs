mod catch;
mod contract;
mod endings;
mod first;
mod log;
mod not_handled;
mod readiness;

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower_mq_delivery::{
    Acker, BoxError, Capabilities, Delivery, Event, Generation, Message, Origin, Outcome, Settle,
    SettleError, Settlement, Settling, Token,
};

/// A source of single deliveries that writes down everything it is told.
struct Source {
    generation: Arc<Generation>,
    told: Arc<Told>,
    events: Arc<Mutex<Vec<&'static str>>>,
}

#[derive(Default)]
struct Told {
    outcomes: Mutex<Vec<(Token, Outcome)>>,
    drops: Mutex<Vec<Token>>,
    answer: Mutex<Option<Result<Settlement, SettleError>>>,
    broker: Mutex<Option<oneshot::Sender<Result<Settlement, SettleError>>>>,
}

impl Settle for Told {
    fn settle(&self, token: Token, outcome: Outcome) -> Settling {
        self.outcomes.lock().push((token, outcome));
        match self.answer.lock().clone() {
            Some(answer) => Settling::done(answer),
            None => {
                let (broker, settling) = Settling::pending();
                *self.broker.lock() = Some(broker);
                settling
            }
        }
    }

    fn dropped(&self, token: Token) -> Settling {
        self.drops.lock().push(token);
        Settling::done(Ok(Settlement::HandedOver))
    }
}

impl Source {
    fn new() -> Self {
        let origin = Arc::new(Origin::new("orders", "test", 8, Capabilities::unknown()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
            heard.lock().push(match event {
                Event::NotHandled { .. } => "not handled",
                Event::Panicked { message: Some(_) } => "panicked",
                _ => "something else",
            });
        }));
        Self { generation: Generation::first(origin), told: Arc::default(), events }
    }

    /// Answers every settlement at once.
    fn answering(answer: Result<Settlement, SettleError>) -> Self {
        let source = Self::new();
        *source.told.answer.lock() = Some(answer);
        source
    }

    fn deliver(&self) -> Delivery {
        let message = Message::builder("secret").attempt(1).generation(self.generation.clone()).build();
        Delivery::new(message, Acker::new(self.told.clone(), 7))
    }

    /// The broker answers the last settlement.
    fn broker_says(&self, answer: Result<Settlement, SettleError>) {
        let broker = self.told.broker.lock().take();
        broker.expect("something was settled").send(answer).expect("somebody waits");
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.told
            .outcomes
            .lock()
            .iter()
            .map(|(token, outcome)| (assert_eq!(*token, 7), outcome.clone()).1)
            .collect()
    }

    fn drops(&self) -> usize {
        self.told.drops.lock().len()
    }

    fn events(&self) -> Vec<&'static str> {
        self.events.lock().clone()
    }

    /// The delivery was settled once, with this.
    #[track_caller]
    fn settled_once(&self, outcome: &Outcome) {
        assert_eq!((&self.outcomes()[..], self.drops()), (std::slice::from_ref(outcome), 0));
    }

    /// The delivery was dropped once, and not settled.
    #[track_caller]
    fn dropped_once(&self) {
        assert_eq!((self.outcomes().len(), self.drops()), (0, 1));
    }
}

/// Says when it is dropped.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicBool>);

struct Guard(Arc<AtomicBool>);

impl Alive {
    fn guard(&self) -> Guard {
        self.0.store(true, Ordering::Relaxed);
        Guard(self.0.clone())
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Runs for ever, holding a guard.
async fn hang(alive: Alive) -> Result<(), BoxError> {
    let _guard = alive.guard();
    pending().await
}
