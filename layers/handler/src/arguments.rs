//! From a message, or a batch, to the arguments of a function.

use tower_mq_delivery::{Batch, Holes, Message, Work};

use crate::{FromMessage, Rejection};

/// The arguments of a handler. They alone say whether it is given a message or a batch.
///
/// Implemented for up to eight extractors, and for a single [`Batch`] of extractors.
#[diagnostic::on_unimplemented(
    message = "these arguments cannot be taken out of a message: `{Self}`",
    note = "up to eight `FromMessage` arguments, or a single `Batch<T>` with `T: FromMessage`"
)]
pub trait Arguments: Sized {
    /// What the handler is given: [`Message`] or [`Batch<Message>`].
    type Work: Work;

    /// Takes the arguments out.
    fn extract(work: &Self::Work) -> Result<Extracted<Self>, Rejection>;
}

/// Arguments, and the members of a batch that they could not be made of.
#[derive(Debug)]
pub struct Extracted<A> {
    /// `None`: nothing could be decoded, there is nothing to call the function with.
    pub(crate) arguments: Option<A>,
    pub(crate) holes: Holes,
}

/// A member that cannot be decoded is rejected by itself; the others are handled.
impl<T: FromMessage> Arguments for (Batch<T>,) {
    type Work = Batch<Message>;

    fn extract(batch: &Batch<Message>) -> Result<Extracted<Self>, Rejection> {
        let mut members = Vec::with_capacity(batch.len());
        let mut holes = Holes::new();
        for (place, message) in batch.iter().enumerate() {
            match T::from_message(message) {
                Ok(member) => members.push(member),
                Err(rejection) => holes.push((place, rejection.into())),
            }
        }
        let arguments = (!members.is_empty()).then(|| (Batch::new(members, batch.closed_by()),));
        Ok(Extracted { arguments, holes })
    }
}

macro_rules! arguments {
    ($($argument:ident)*) => {
        impl<$($argument: FromMessage),*> Arguments for ($($argument,)*) {
            type Work = Message;

            fn extract(_message: &Message) -> Result<Extracted<Self>, Rejection> {
                let arguments = Some(($($argument::from_message(_message)?,)*));
                Ok(Extracted { arguments, holes: Holes::new() })
            }
        }
    };
}

arguments! {}
arguments! { A }
arguments! { A B }
arguments! { A B C }
arguments! { A B C D }
arguments! { A B C D E }
arguments! { A B C D E F }
arguments! { A B C D E F G }
arguments! { A B C D E F G H }
