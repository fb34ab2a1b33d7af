//! What a handler is given, and the answers to it.

use crate::{
    Batch, BoxError, Carry, Decided, DynError, IntoOutcome, Message, Outcome, SharedError, WrongLength,
};

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

    /// For retry: the message, if it is a single one. A batch is none, whatever its size.
    fn single(&self) -> Option<&Message> {
        None
    }

    /// For retry: keeps the members that failed and that `again` names, and sets the others aside with what was decided
    /// about them. `again` is asked once for each member that failed. The answer comes back, and nothing is changed, if
    /// none is named.
    fn narrow(
        &mut self,
        answer: Result<Self::Answer, BoxError>,
        aside: &mut Aside,
        again: &mut dyn FnMut(&Message, &DynError) -> bool,
    ) -> Option<Result<Self::Answer, BoxError>>;

    /// For retry: puts what was set aside back into the last answer, in order.
    fn widen(answer: Result<Self::Answer, BoxError>, _aside: &mut Aside) -> Result<Self::Answer, BoxError> {
        answer
    }

    /// For retry: gives the members that failed the outcome that `decide` has for them; `None` leaves the error. It is
    /// asked once for each member that failed.
    fn decide(
        &self,
        answer: Result<Self::Answer, BoxError>,
        decide: &mut dyn FnMut(&Message, &DynError) -> Option<Outcome>,
    ) -> Result<Self::Answer, BoxError>;

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

/// Members that need not be handled again, and the places of those that must. Empty, and nothing allocated, until a batch
/// fails in part.
#[derive(Debug, Default)]
pub struct Aside(Option<Box<Members>>);

#[derive(Debug, Default)]
struct Members {
    /// The places, in the first batch, of the members that are still in the batch.
    left: Vec<usize>,
    decided: Vec<(usize, Result<Outcome, BoxError>)>,
}

impl Aside {
    /// Nothing is set aside.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Nothing is set aside.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Work for Message {
    type Answer = Outcome;

    fn single(&self) -> Option<&Message> {
        Some(self)
    }

    fn narrow(
        &mut self,
        answer: Result<Outcome, BoxError>,
        _: &mut Aside,
        again: &mut dyn FnMut(&Message, &DynError) -> bool,
    ) -> Option<Result<Outcome, BoxError>> {
        match answer {
            Err(error) if again(self, &*error) => None,
            answer => Some(answer),
        }
    }

    fn decide(
        &self,
        answer: Result<Outcome, BoxError>,
        decide: &mut dyn FnMut(&Message, &DynError) -> Option<Outcome>,
    ) -> Result<Outcome, BoxError> {
        answer.or_else(|error| decide(self, &*error).ok_or(error))
    }
}

impl Work for Batch<Message> {
    type Answer = Outcomes;

    fn narrow(
        &mut self,
        answer: Result<Outcomes, BoxError>,
        aside: &mut Aside,
        again: &mut dyn FnMut(&Message, &DynError) -> bool,
    ) -> Option<Result<Outcomes, BoxError>> {
        let named: Vec<bool> = match &answer {
            Ok(Outcomes::Each(results))
                if results.len() == self.len() && results.iter().any(Result::is_err) =>
            {
                let members = self.iter().zip(results);
                members
                    .map(|(member, result)| result.as_ref().is_err_and(|error| again(member, &**error)))
                    .collect()
            }
            Ok(_) => return Some(answer),
            Err(error) => self.iter().map(|member| again(member, &**error)).collect(),
        };
        if !named.contains(&true) {
            return Some(answer);
        }
        if !named.contains(&false) {
            return None;
        }
        let results = match each(answer, self.len()) {
            Ok(results) => results,
            Err(wrong) => return Some(Err(wrong.into())),
        };
        let aside = aside.0.get_or_insert_default();
        if aside.left.is_empty() {
            aside.left = (0..results.len()).collect();
        }
        let places = std::mem::take(&mut aside.left);
        let members = std::mem::take(self.members_mut());
        for (((member, result), place), named) in members.into_iter().zip(results).zip(places).zip(named) {
            if named {
                aside.left.push(place);
                self.members_mut().push(member);
            } else {
                aside.decided.push((place, result));
            }
        }
        None
    }

    fn widen(answer: Result<Outcomes, BoxError>, aside: &mut Aside) -> Result<Outcomes, BoxError> {
        let Some(aside) = aside.0.take() else { return answer };
        let Members { left, decided: mut all } = *aside;
        let last = match each(answer, left.len()) {
            Ok(last) => last,
            // What was set aside is decided, whatever the handler makes of the rest.
            Err(wrong) => left.iter().map(|_| Err(wrong.into())).collect(),
        };
        all.extend(left.into_iter().zip(last));
        all.sort_by_key(|(place, _)| *place);
        Ok(Outcomes::Each(all.into_iter().map(|(_, result)| result).collect()))
    }

    fn decide(
        &self,
        answer: Result<Outcomes, BoxError>,
        decide: &mut dyn FnMut(&Message, &DynError) -> Option<Outcome>,
    ) -> Result<Outcomes, BoxError> {
        let mut decide = |member, error: BoxError| decide(member, &*error).ok_or(error);
        match answer {
            Ok(Outcomes::Each(results)) if results.len() == self.len() => {
                let decided = self.iter().zip(results);
                let decided = decided.map(|(member, result)| result.or_else(|error| decide(member, error)));
                Ok(Outcomes::Each(decided.collect()))
            }
            Err(error) => {
                let error = SharedError::from(error);
                let decided: Vec<_> =
                    self.iter().map(|member| decide(member, error.clone().into())).collect();
                // An error of all of them goes on as one.
                match decided.iter().all(Result::is_err) {
                    true => Err(error.into()),
                    false => Ok(Outcomes::Each(decided)),
                }
            }
            answer => answer,
        }
    }

    fn fill(answer: Result<Outcomes, BoxError>, members: usize, holes: Holes) -> Result<Outcomes, BoxError> {
        if holes.is_empty() {
            return answer;
        }
        let expected = members - holes.len();
        let good = match each(answer, expected) {
            Ok(good) => good,
            // Filled up, it might have the right length by chance.
            Err(wrong) => (0..expected).map(|_| Err(wrong.into())).collect(),
        };
        let (mut good, mut holes) = (good.into_iter(), holes.into_iter().peekable());
        let merged = (0..members).filter_map(|place| match holes.next_if(|(hole, _)| *hole == place) {
            Some((_, error)) => Some(Err(error)),
            None => good.next(),
        });
        Ok(Outcomes::Each(merged.collect()))
    }
}

/// One result for each of `members`.
fn each(
    answer: Result<Outcomes, BoxError>,
    members: usize,
) -> Result<Vec<Result<Outcome, BoxError>>, WrongLength> {
    match answer {
        Ok(Outcomes::Each(results)) if results.len() == members => Ok(results),
        Ok(Outcomes::Each(results)) => Err(WrongLength { members, results: results.len() }),
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

    fn error(&self) -> Option<&DynError> {
        match self {
            Self::All(_) => None,
            Self::Each(results) => {
                results.iter().find_map(|result| result.as_ref().err()).map(|error| &**error as _)
            }
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
    use crate::Failure;

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

    fn anyway(_: &Message, _: &DynError) -> bool {
        true
    }

    #[test]
    fn only_the_members_that_failed_run_again_and_the_order_is_restored() {
        let (mut work, mut aside) = (batch(4), Aside::new());
        let first =
            Ok(Outcomes::Each(vec![Err(error()), Ok(Outcome::Ack), Err(error()), Ok(Outcome::Release)]));
        assert!(work.narrow(first, &mut aside, &mut anyway).is_none());
        assert_eq!(payloads(&work), [0, 2]);
        let second = Ok(Outcomes::Each(vec![Ok(Outcome::Ack), Err(error())]));
        assert!(work.narrow(second, &mut aside, &mut anyway).is_none());
        assert_eq!(payloads(&work), [2]);
        let third = work.narrow(Ok(Outcomes::All(Outcome::reject("no"))), &mut aside, &mut anyway);
        let third = third.expect("nothing failed");
        assert_eq!(names(Batch::widen(third, &mut aside)), ["ack", "ack", "reject", "release"]);
    }

    #[test]
    fn who_is_not_named_keeps_its_error_and_is_not_run_again() {
        let (mut work, mut aside) = (batch(3), Aside::new());
        let answer =
            Ok(Outcomes::Each(vec![Err(Failure::reject("no").into()), Ok(Outcome::Ack), Err(error())]));
        let mut asked = Vec::new();
        let narrowed = work.narrow(answer, &mut aside, &mut |member, error| {
            asked.push(member.payload()[0]);
            Failure::find(error).is_none()
        });
        assert!(narrowed.is_none());
        assert_eq!((payloads(&work), asked), (vec![2], vec![0, 2]));
        let Ok(Outcomes::Each(results)) = Batch::widen(Ok(Outcome::Ack.into()), &mut aside) else {
            panic!("one for each")
        };
        let rejected = results[0].as_ref().expect_err("it goes on as it was");
        assert_eq!(rejected.to_string(), "no");
        assert!(results[1..].iter().all(|result| matches!(result, Ok(Outcome::Ack))));
    }

    #[test]
    fn a_batch_that_failed_as_a_whole_runs_again_as_a_whole_or_goes_on_with_its_error() {
        let (mut work, mut aside) = (batch(2), Aside::new());
        assert!(work.narrow(Err(error()), &mut aside, &mut anyway).is_none());
        assert_eq!(payloads(&work), [0, 1]);
        let answer = work.narrow(Err(error()), &mut aside, &mut |_, _| false);
        let answer = Batch::widen(answer.expect("none is named"), &mut aside);
        assert_eq!(answer.expect_err("as it was").to_string(), "down");
        let some = work.narrow(Err(error()), &mut aside, &mut |member, _| member.payload()[0] == 1);
        assert!(some.is_none());
        assert_eq!(payloads(&work), [1]);
        assert_eq!(names(Batch::widen(Ok(Outcome::Ack.into()), &mut aside)), ["error", "ack"]);
    }

    #[test]
    fn what_is_set_aside_stands_when_the_rest_gets_a_wrong_number_of_results() {
        let (mut work, mut aside) = (batch(3), Aside::new());
        let first = Ok(Outcomes::Each(vec![Err(error()), Ok(Outcome::Ack), Err(error())]));
        assert!(work.narrow(first, &mut aside, &mut anyway).is_none());
        let odd = work.narrow(Ok(Outcomes::Each(Vec::new())), &mut aside, &mut anyway).expect("odd");
        assert_eq!(names(Batch::widen(odd, &mut aside)), ["error", "ack", "error"]);
    }

    #[test]
    fn failed_members_are_decided_one_by_one() {
        let mut second =
            |member: &Message, _: &DynError| (member.payload()[0] == 1).then_some(Outcome::Release);
        let answer = Ok(Outcomes::Each(vec![Err(error()), Err(error()), Ok(Outcome::Ack)]));
        assert_eq!(names(batch(3).decide(answer, &mut second)), ["error", "release", "ack"]);
        assert_eq!(names(batch(2).decide(Err(error()), &mut second)), ["error", "release"]);
        let whole = batch(1).decide(Err(error()), &mut second).expect_err("nothing was decided");
        assert_eq!(whole.to_string(), "down");
        let odd = batch(2).decide(Ok(Outcomes::Each(Vec::new())), &mut second);
        assert!(matches!(odd, Ok(Outcomes::Each(results)) if results.is_empty()));
    }

    #[test]
    fn an_answer_of_the_wrong_length_fails_the_members_that_were_decoded_and_no_others() {
        // With the one that could not be decoded it would be as long as the batch.
        let odd = Ok(Outcomes::Each((0..4).map(|_| Ok(Outcome::Ack)).collect()));
        let Ok(Outcomes::Each(results)) = Batch::fill(odd, 4, vec![(1, error())]) else {
            panic!("one for each")
        };
        let texts: Vec<_> = results.iter().map(|r| r.as_ref().expect_err("failed").to_string()).collect();
        assert_eq!((texts.len(), &*texts[1]), (4, "down"));
        for place in [0, 2, 3] {
            assert!(texts[place].contains("3 members") && texts[place].contains("4 results"), "{texts:?}");
        }
    }

    #[test]
    fn members_that_could_not_be_decoded_come_back_in_their_places() {
        let holes = vec![(0, error()), (2, error())];
        assert_eq!(names(Batch::fill(Ok(Outcome::Ack.into()), 4, holes)), ["error", "ack", "error", "ack"]);
    }
}
