//! What a layer is asked, and what the service under it answers.

use tower_mq_delivery::{
    BoxError, Carry, CarryOne, Delivery, Message, Outcome, Outcomes, Settled, Settlement,
};

use crate::{Probe, delivery};

/// What stands outside of a checked layer: [`Delivery`] or [`Message`].
#[diagnostic::on_unimplemented(
    message = "a layer can be checked with `Delivery` or `Message` outside, not with `{Self}`",
    note = "name one: `contract::check::<Message, _>(layer)`"
)]
pub trait Request: CarryOne + Send + 'static {
    /// One more, and its probe if it has to be settled.
    fn make(message: Message) -> (Self, Option<Probe>)
    where
        Self: Sized;
}

impl Request for Delivery {
    fn make(message: Message) -> (Self, Option<Probe>) {
        let (delivery, probe) = delivery(message);
        (delivery, Some(probe))
    }
}

impl Request for Message {
    fn make(message: Message) -> (Self, Option<Probe>) {
        (message, None)
    }
}

/// What the service under a checked layer can be given: a delivery, a message, or a batch of messages.
pub trait Answer: Carry + Send + 'static {
    /// What it answers.
    type Answer: Send;

    /// The good answer.
    fn answer(self) -> Self::Answer;
}

impl Answer for Message {
    type Answer = Outcome;

    fn answer(self) -> Outcome {
        Outcome::Ack
    }
}

impl Answer for tower_mq_delivery::Batch<Message> {
    type Answer = Outcomes;

    fn answer(self) -> Outcomes {
        Outcomes::All(Outcome::Ack)
    }
}

impl Answer for Delivery {
    type Answer = Settled;

    fn answer(self) -> Settled {
        let settlement = self.settle(Outcome::Ack).now().unwrap_or(Settlement::HandedOver);
        Settled::new(Outcome::Ack, settlement)
    }
}

/// The error that the service under the layer gives, when the case is about errors.
pub(super) fn failed() -> BoxError {
    "the check lets this call fail".into()
}
