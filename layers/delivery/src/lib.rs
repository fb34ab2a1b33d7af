//! The vocabulary of `tower-mq`: what a message, a delivery and an outcome are, and how a stack runs one delivery at
//! a time until a layer takes over the order.
//!
//! Layers and sources depend on this crate and on nothing else of the project. Users find all of it in `tower_mq`.
//!
//! | word | meaning |
//! |---|---|
//! | [`Message`] | payload, key, headers, properties |
//! | [`Delivery`] | a message plus the duty to settle it |
//! | [`Outcome`] | what the broker is told: ack, release, retry, reject |
//! | [`Acker`], [`Settle`], [`Settling`] | the duty, who takes the decision, and what became of it |
//! | [`Origin`], [`Generation`] | the source of a message, and the life of the connection it was taken in |
//! | [`Turn`] | the right to be the delivery that holds up the queue |
//! | [`Drive`] | the loop that runs a service over a queue |
//! | [`Carry`], [`CarryOne`], [`Work`] | requests that layers are generic over |

mod answer;
mod batch;
mod body;
mod builder;
mod capabilities;
mod carry;
mod delivery;
mod drive;
mod error;
mod failure;
mod generation;
mod message;
mod observe;
mod origin;
mod outcome;
mod policy;
mod properties;
mod publish;
mod settling;
mod signal;
mod sync;
mod tally;
mod turn;
mod value;
mod work;

pub use answer::{Answer, AnswerFuture, AnswerLayer};
pub use batch::{Batch, ClosedBy};
pub use builder::MessageBuilder;
pub use capabilities::{Attempts, Capabilities};
pub use carry::{Carry, CarryOne};
pub use delivery::{Acker, Delivery, Settle, Token};
pub use drive::{Drive, Finished, InSpan, Intake, Stopped, Tag};
pub use error::{BoxError, Panic, Panicked, SharedError, WrongLength};
pub use failure::{Failure, FailureExt};
pub use generation::Generation;
pub use message::{Headers, Message};
pub use observe::{Circuit, Event, Observer};
pub use origin::{Drain, Origin};
pub use outcome::{Decided, IntoOutcome, Outcome};
pub use policy::{DynError, ErrorPolicy};
pub use properties::{Plain, Properties};
pub use publish::{
    ATTEMPT_HEADER, DEAD_LETTER_ATTEMPTS, DEAD_LETTER_FIRST_FAILURE, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON,
    DEAD_LETTER_TRIES, NotStored, Publication, Receipt,
};
pub use settling::{SettleError, Settled, Settlement, Settling};
pub use tally::{Counts, Tally};
pub use turn::{Parked, Stalled, Turn, Turns};
pub use value::Value;
pub use work::{Aside, Holes, IntoAnswer, Outcomes, Work};
