//! A source that tells the model what it hands out, and what of it is settled.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::Stream;
use parking_lot::Mutex;
use tower_mq::{
    Acker, Delivery, Message, Outcome, Settle, Settlement, Settling, Token, Value,
    source::{Handle, Source, SourceError},
};

use super::{End, NUMBER, Seen, Taken, World};

/// A source, watched.
pub struct Watched {
    source: Pin<Box<dyn Source + Send>>,
    world: World,
}

impl Watched {
    pub fn new(source: impl Source + Send + 'static, world: &World) -> Self {
        Self { source: Box::pin(source), world: world.clone() }
    }
}

impl Stream for Watched {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let Some(delivery) = ready!(self.source.as_mut().poll_next(cx)) else { return Poll::Ready(None) };
        let (message, acker) = delivery.into_parts();
        let token = self.world.lock().taken(&message);
        let duty = Duty { acker: Mutex::new(Some(acker)), world: self.world.clone() };
        Poll::Ready(Some(Delivery::new(message, Acker::new(Arc::new(duty), token))))
    }
}

impl Source for Watched {
    fn handle(&self) -> Handle {
        self.source.handle()
    }

    fn poll_closed(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        self.source.as_mut().poll_closed(cx)
    }
}

struct Duty {
    acker: Mutex<Option<Acker>>,
    world: World,
}

impl Settle for Duty {
    fn settle(&self, token: Token, outcome: Outcome) -> Settling {
        let Some(acker) = self.acker.lock().take() else {
            self.world.lock().broke(format!("promise 2: delivery {token} was settled twice"));
            return Settling::done(Ok(Settlement::Stale));
        };
        // Before the broker knows: the message may be handed out again at once.
        self.world.lock().settling(token as usize, &outcome);
        let settling = acker.settle(outcome.clone());
        let settlement = settling.now().unwrap_or(Settlement::Stale);
        self.world.lock().settled(token as usize, &End::Settled(outcome, settlement));
        settling
    }

    fn dropped(&self, token: Token) -> Settling {
        let acker = self.acker.lock().take();
        let stale = self.world.lock().deliveries[token as usize].generation.is_over();
        let settlement = if stale { Settlement::Stale } else { Settlement::HandedOver };
        self.world.lock().settled(token as usize, &End::Dropped(settlement));
        drop(acker);
        Settling::done(Ok(settlement))
    }
}

impl Seen {
    /// Which message it is.
    pub(super) fn number(message: &Message) -> usize {
        let number = message.header(NUMBER).as_ref().and_then(Value::as_i64);
        number.and_then(|n| usize::try_from(n).ok()).expect("every message has a number")
    }

    /// The last delivery of this message in its generation, and in this run: that which it belongs to.
    pub(super) fn delivery_of(&self, message: &Message) -> Option<usize> {
        self.places.get(&(self.runs, Self::number(message), message.generation().number())).copied()
    }

    fn taken(&mut self, message: &Message) -> Token {
        let (n, number) = (Self::number(message), self.deliveries.len());
        let generation = message.generation().clone();
        let open =
            self.deliveries.iter().filter(|d| d.end.is_none() && Arc::ptr_eq(&d.generation, &generation));
        if open.count() >= self.rules.window {
            self.broke(format!("promise 5: delivery {number} is beyond the window of {}", self.rules.window));
        }
        if let Some(last) = self.letters[n].last {
            self.explained(n, last);
        }
        self.places.insert((self.runs, n, generation.number()), number);
        self.note(|| {
            format!(
                "taken {n}: delivery {number}, generation {}, attempt {:?}",
                generation.number(),
                message.attempt()
            )
        });
        self.letters[n].last = Some(number);
        self.deliveries.push(Taken { n, generation, end: None, succeeded: false, copies: 0, unsure: 0 });
        number as Token
    }

    /// A message comes again: why?
    fn explained(&mut self, n: usize, last: usize) {
        let Taken { end, generation, .. } = &self.deliveries[last];
        let lost = generation.is_over();
        let explained = match end {
            None => lost,
            Some(End::Settled(Outcome::Ack, settlement)) => {
                *settlement == Settlement::Stale || lost && !self.rules.exact
            }
            Some(_) => true,
        };
        if !explained {
            let end = end.clone();
            self.broke(format!("promise 6: message {n} came again after {end:?}, delivery {last}"));
        }
    }

    fn settling(&mut self, number: usize, outcome: &Outcome) {
        let Taken { n, .. } = self.deliveries[number];
        let letter = &self.letters[n];
        let known = letter.id.as_ref().is_some_and(|id| self.known.contains_key(id));
        let handled = known || self.deliveries.iter().any(|d| d.n == n && d.succeeded);
        let reason = match outcome {
            Outcome::Ack if !handled && letter.copies == 0 => "was acked, and neither handled nor copied",
            Outcome::Reject { .. } => "was rejected beside its dead-letter layer",
            _ => return,
        };
        self.broke(format!("promise 3: message {n} {reason}, delivery {number}"));
    }

    fn settled(&mut self, number: usize, end: &End) {
        self.note(|| format!("settled: delivery {number}, {end:?}"));
        let delivery = &mut self.deliveries[number];
        let (n, last) = (delivery.n, delivery.end.replace(end.clone()));
        if matches!(end, End::Settled(Outcome::Ack, _)) && !end.is_stale() {
            self.letters[n].done = true;
        }
        if let Some(last) = last {
            self.broke(format!("promise 2: delivery {number} ended with {last:?} and with {end:?}"));
        }
    }
}
