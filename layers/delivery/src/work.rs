//! What a handler is given, and the answers to it.

use crate::{Batch, BoxError, Carry, Decided, Failure, IntoOutcome, Message, Outcome, SharedError};

/// What a handler is given: a [`Message`], or a [`Batch`] of them. Sealed in spirit: layers inside Settle are generic
/// over it, so that they stand on either side of a batch layer.
#[diagnostic::on_unimplemented(
    message = "a handler is given `Message` or `Batch<Message>`, not `{Self}`",
    note = "a `SettleLayer` must stand outside the handler: it turns a `Delivery` into a `Message`"
)]
pub trait Work: Carry + Clone + Send + 'static {
    /// [`Outcome`] for a message, [`Outcomes`] for a batch.
    type Answer: From<Outcome> + Decided + IntoAnswer<Self> + Send + 'static;

    /// For retry: every message in it is handled once more.
    fn again(&self) {
        self.messages().iter().for_each(Message::again);
    }

    /// For retry: sets aside the members that are decided and keeps those that failed. `true`: some failed, and they
    /// can be handled again by themselves.
    fn narrow(&mut self, _answer: &Result<Self::Answer, BoxError>, _aside: &mut Aside) -> bool {
        false
    }

    /// For retry: puts what was set aside back into the last answer, in order.
    fn widen(answer: Result<Self::Answer, BoxError>, _aside: &mut Aside) -> Result<Self::Answer, BoxError> {
        answer
    }

    /// For handlers: puts the members that could not be decoded back into the answer for the others, in order.
    fn fill(
        answer: Result<Self::Answer, BoxError>,
        _members: usize,
        _holes: Holes,
    ) -> Result<Self::Answer, BoxError> {
        answer
    }
}

/// Members that could not be decoded, by their place in the batch, in order.
pub type Holes = Vec<(usize, BoxError)>;

/// Members that need not be handled again, and the places of those that must. Empty until a batch fails in part.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// The places, in the first batch, of the members that are still in the batch.
    places: Vec<usize>,
    decided: Vec<(usize, Outcome)>,
}

impl Aside {
    /// Nothing is set aside.
    pub const fn new() -> Self {
        Self { places: Vec::new(), decided: Vec::new() }
    }
}

impl Work for Message {
    type Answer = Outcome;
}

impl Work for Batch<Message> {
    type Answer = Outcomes;

    fn narrow(&mut self, answer: &Result<Outcomes, BoxError>, aside: &mut Aside) -> bool {
        let Ok(Outcomes::Each(results)) = answer else { return false };
        if results.len() != self.len() {
            return false;
        }
        let decided = |result: &Result<Outcome, BoxError>| match result {
            Ok(outcome) => Some(outcome.clone()),
            Err(error) => Failure::find(&**error).cloned(),
        };
        let failed = |result: &Result<Outcome, BoxError>| decided(result).is_none();
        if !results.iter().any(failed) {
            return false;
        }
        if aside.places.is_empty() {
            aside.places = (0..results.len()).collect();
        }
        let places = std::mem::take(&mut aside.places);
        let mut members = Vec::new();
        for ((result, member), place) in results.iter().zip(self.iter()).zip(places) {
            match decided(result) {
                Some(outcome) => aside.decided.push((place, outcome)),
                None => {
                    aside.places.push(place);
                    members.push(member.clone());
                }
            }
        }
        *self.members_mut() = members;
        true
    }

    fn widen(answer: Result<Outcomes, BoxError>, aside: &mut Aside) -> Result<Outcomes, BoxError> {
        if aside.places.is_empty() {
            return answer;
        }
        let places = std::mem::take(&mut aside.places);
        let last = match each(answer, places.len()) {
            Ok(last) => last,
            // The batch layer says what is wrong with it.
            Err(odd) => return Ok(odd),
        };
        let mut all: Vec<_> = aside.decided.drain(..).map(|(place, outcome)| (place, Ok(outcome))).collect();
        all.extend(places.into_iter().zip(last));
        all.sort_by_key(|(place, _)| *place);
        Ok(Outcomes::Each(all.into_iter().map(|(_, result)| result).collect()))
    }

    fn fill(answer: Result<Outcomes, BoxError>, members: usize, holes: Holes) -> Result<Outcomes, BoxError> {
        if holes.is_empty() {
            return answer;
        }
        let good = match each(answer, members - holes.len()) {
            Ok(good) => good,
            Err(odd) => return Ok(odd),
        };
        let (mut good, mut holes) = (good.into_iter(), holes.into_iter().peekable());
        let merged = (0..members).filter_map(|place| match holes.next_if(|(hole, _)| *hole == place) {
            Some((_, error)) => Some(Err(error)),
            None => good.next(),
        });
        Ok(Outcomes::Each(merged.collect()))
    }
}

/// One result for each of `members`; `Err`: the answer has another length, and is given back.
fn each(
    answer: Result<Outcomes, BoxError>,
    members: usize,
) -> Result<Vec<Result<Outcome, BoxError>>, Outcomes> {
    match answer {
        Ok(Outcomes::Each(results)) if results.len() == members => Ok(results),
        Ok(odd @ Outcomes::Each(_)) => Err(odd),
        Ok(Outcomes::All(outcome)) => Ok((0..members).map(|_| Ok(outcome.clone())).collect()),
        Err(error) => {
            let error = SharedError::from(error);
            Ok((0..members).map(|_| Err(error.clone().into())).collect())
        }
    }
}

/// What is decided about a batch.
#[derive(Debug)]
pub enum Outcomes {
    /// One outcome for all members.
    All(Outcome),
    /// One result for each member, in order. Another length is a mistake of the handler, and fails every member.
    Each(Vec<Result<Outcome, BoxError>>),
}

impl From<Outcome> for Outcomes {
    fn from(outcome: Outcome) -> Self {
        Self::All(outcome)
    }
}

impl Decided for Outcomes {
    fn decided(&self) -> Option<&Outcome> {
        match self {
            Self::All(outcome) => Some(outcome),
            Self::Each(_) => None,
        }
    }
}

/// What a service may answer to `W`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no answer to `{W}`",
    label = "not an answer",
    note = "for a message: `()`, `Outcome`, or a `Result` of these with `E: Into<BoxError>`",
    note = "for a batch: the same for all members, or `Vec<()>`, `Vec<Outcome>`, `Vec<Result<..>>` with one entry for each"
)]
pub trait IntoAnswer<W: Work> {
    /// The answer in the one currency of the stack, or the error that a policy will judge.
    fn into_answer(self) -> Result<W::Answer, BoxError>;
}

impl<T: IntoOutcome> IntoAnswer<Message> for T {
    fn into_answer(self) -> Result<Outcome, BoxError> {
        self.into_outcome()
    }
}

impl IntoAnswer<Batch<Message>> for Outcomes {
    fn into_answer(self) -> Result<Outcomes, BoxError> {
        Ok(self)
    }
}

impl IntoAnswer<Batch<Message>> for () {
    fn into_answer(self) -> Result<Outcomes, BoxError> {
        Ok(Outcomes::All(Outcome::Ack))
    }
}

impl IntoAnswer<Batch<Message>> for Outcome {
    fn into_answer(self) -> Result<Outcomes, BoxError> {
        Ok(Outcomes::All(self))
    }
}

impl<T: IntoOutcome> IntoAnswer<Batch<Message>> for Vec<T> {
    fn into_answer(self) -> Result<Outcomes, BoxError> {
        Ok(Outcomes::Each(self.into_iter().map(T::into_outcome).collect()))
    }
}

impl<T: IntoAnswer<Batch<Message>>, E: Into<BoxError>> IntoAnswer<Batch<Message>> for Result<T, E> {
    fn into_answer(self) -> Result<Outcomes, BoxError> {
        self.map_err(Into::into)?.into_answer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(n: u8) -> Batch<Message> {
        (0..n).map(|i| Message::new(vec![i])).collect::<Vec<_>>().into()
    }

    fn error() -> BoxError {
        "down".into()
    }

    fn payloads(batch: &Batch<Message>) -> Vec<u8> {
        batch.iter().map(|m| m.payload()[0]).collect()
    }

    fn names(answer: Result<Outcomes, BoxError>) -> Vec<&'static str> {
        match answer {
            Ok(Outcomes::Each(results)) => {
                results.iter().map(|r| r.as_ref().map_or("error", Outcome::name)).collect()
            }
            _ => vec!["not each"],
        }
    }

    #[test]
    fn only_the_members_that_failed_run_again_and_the_order_is_restored() {
        let (mut work, mut aside) = (batch(4), Aside::new());
        let first =
            Ok(Outcomes::Each(vec![Err(error()), Ok(Outcome::Ack), Err(error()), Ok(Outcome::Release)]));
        assert!(work.narrow(&first, &mut aside));
        assert_eq!(payloads(&work), [0, 2]);
        let second = Ok(Outcomes::Each(vec![Ok(Outcome::Ack), Err(error())]));
        assert!(work.narrow(&second, &mut aside));
        assert_eq!(payloads(&work), [2]);
        let third = Ok(Outcomes::All(Outcome::reject("no")));
        assert!(!work.narrow(&third, &mut aside));
        assert_eq!(names(Batch::widen(third, &mut aside)), ["ack", "ack", "reject", "release"]);
    }

    #[test]
    fn a_decided_error_is_not_run_again() {
        let (mut work, mut aside) = (batch(2), Aside::new());
        let answer = Ok(Outcomes::Each(vec![Err(Failure::reject("no").into()), Ok(Outcome::Ack)]));
        assert!(!work.narrow(&answer, &mut aside));
    }

    #[test]
    fn members_that_could_not_be_decoded_come_back_in_their_places() {
        let holes = vec![(0, error()), (2, error())];
        assert_eq!(names(Batch::fill(Ok(Outcome::Ack.into()), 4, holes)), ["error", "ack", "error", "ack"]);
    }
}
