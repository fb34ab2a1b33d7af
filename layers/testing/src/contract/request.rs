//! What a layer is asked, and what the service under it answers.

use tower_mq_delivery::{
    Batch, BoxError, Delivery, Message, Outcome, Outcomes, Publication, Receipt, Settled, Settlement,
};

use crate::{Probe, delivery};

/// What stands outside of a checked layer: [`Delivery`], [`Message`], or [`Publication`] for a layer around a publisher.
#[diagnostic::on_unimplemented(
    message = "a layer can be checked with `Delivery`, `Message` or `Publication` outside, not with `{Self}`",
    note = "name one: `contract::check::<Message, _>(layer)`"
)]
pub trait Request: Send + 'static {
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

impl Request for Publication {
    fn make(message: Message) -> (Self, Option<Probe>) {
        (Self::new(message).to("somewhere"), None)
    }
}

/// What the service under a checked layer can be given: a delivery, a message, a batch of messages, or a publication.
pub trait Answer: Send + 'static {
    /// What it answers.
    type Answer: Send;

    /// The messages in it.
    fn asked(&self) -> &[Message];

    /// The answer with this decision.
    fn answer(self, outcome: Outcome) -> Self::Answer;
}

impl Answer for Message {
    type Answer = Outcome;

    fn asked(&self) -> &[Message] {
        std::slice::from_ref(self)
    }

    fn answer(self, outcome: Outcome) -> Outcome {
        outcome
    }
}

impl Answer for Batch<Message> {
    type Answer = Outcomes;

    fn asked(&self) -> &[Message] {
        self
    }

    fn answer(self, outcome: Outcome) -> Outcomes {
        Outcomes::All(outcome)
    }
}

impl Answer for Delivery {
    type Answer = Settled;

    fn asked(&self) -> &[Message] {
        std::slice::from_ref(self.message())
    }

    fn answer(self, outcome: Outcome) -> Settled {
        let settlement = self.settle(outcome.clone()).now().unwrap_or(Settlement::HandedOver);
        Settled::new(outcome, settlement)
    }
}

impl Answer for Publication {
    type Answer = Receipt;

    fn asked(&self) -> &[Message] {
        std::slice::from_ref(&self.message)
    }

    fn answer(self, _: Outcome) -> Receipt {
        Receipt::new()
    }
}

/// The error that the service under the layer gives, when the case is about errors.
pub(super) fn failed() -> BoxError {
    "the check lets this call fail".into()
}
