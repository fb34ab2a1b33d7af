//! How a span ends: what is recorded of the response, also when there is none.

use std::{
    any::{Any, TypeId, type_name},
    error::Error,
    iter::successors,
};

use tower_mq_delivery::{
    BoxError, DynError, Failure, Outcome, Outcomes, Panicked, Receipt, SettleError, Settled,
};
use tracing::Span;

use crate::convention::{
    DROPPED, ERROR_TYPE, FAILED, MIXED, OTHER, OUTCOME, RECEIPT, STATUS, STATUS_DESCRIPTION,
};

/// A span, which records how it ends, once. It is boxed, so that futures are small when nobody listens.
pub(crate) struct Ending(Box<Span>);

impl Ending {
    /// `None`: nobody wants the span.
    #[inline]
    pub(crate) fn of(span: Span) -> Option<Self> {
        if span.is_none() { None } else { Some(Self(Box::new(span))) }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.0
    }

    /// The response is there.
    pub(crate) fn end<T: 'static, E: 'static>(mut self, result: &Result<T, E>) {
        record(&std::mem::replace(&mut *self.0, Span::none()), result);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.0.is_none() {
            dropped(&self.0);
        }
    }
}

#[cold]
fn dropped(span: &Span) {
    span.record(OUTCOME, DROPPED);
    if std::thread::panicking() {
        failed(span, "panic", None);
    }
}

/// The types are known at compile time, so nothing is left of the questions for them.
fn record<T: 'static, E: 'static>(span: &Span, result: &Result<T, E>) {
    match result {
        Ok(response) => answered(span, response),
        Err(error) => match (error as &dyn Any).downcast_ref::<BoxError>() {
            Some(error) => boxed(span, &**error),
            None => failed(span, kind_of::<E>(), None),
        },
    }
}

fn answered(span: &Span, response: &dyn Any) {
    if let Some(settled) = response.downcast_ref::<Settled>() {
        decided(span, &settled.outcome);
    } else if let Some(outcome) = response.downcast_ref::<Outcome>() {
        decided(span, outcome);
    } else if let Some(outcomes) = response.downcast_ref::<Outcomes>() {
        match outcomes {
            Outcomes::All(outcome) => decided(span, outcome),
            Outcomes::Each(each) => members(span, each),
        }
    } else if response.is::<()>() {
        decided(span, &Outcome::Ack);
    } else if let Some(id) = response.downcast_ref::<Receipt>().and_then(|receipt| receipt.id.as_deref()) {
        span.record(RECEIPT, id);
    }
}

/// A release is nobody's fault. A message that is retried or rejected was not handled.
fn decided(span: &Span, outcome: &Outcome) {
    span.record(OUTCOME, outcome.name());
    match outcome {
        Outcome::Reject { reason } => failed(span, outcome.name(), Some(reason)),
        Outcome::Retry { .. } => failed(span, outcome.name(), None),
        _ => {}
    }
}

/// Members of a batch that ended alike end as one message does.
fn members(span: &Span, each: &[Result<Outcome, BoxError>]) {
    let names = || each.iter().map(|member| member.as_ref().map_or("", Outcome::name));
    let alike = names().zip(names().skip(1)).all(|(one, next)| one == next);
    // The first that failed speaks for all.
    let first = each.iter().find(|member| !matches!(member, Ok(Outcome::Ack | Outcome::Release)));
    match first.or(each.first()) {
        Some(Ok(outcome)) => decided(span, outcome),
        Some(Err(error)) => boxed(span, &**error),
        None => {}
    }
    if !alike {
        span.record(OUTCOME, MIXED);
    }
}

#[cold]
fn boxed(span: &Span, error: &DynError) {
    if let Some(outcome) = Failure::find(error) {
        span.record(OUTCOME, outcome.name());
    }
    let kind =
        successors(Some(error as &(dyn Error + 'static)), |error| (**error).source()).find_map(|error| {
            let settling = error.is::<SettleError>().then_some("settlement");
            error.is::<Panicked>().then_some("panic").or(settling)
        });
    failed(span, kind.unwrap_or(OTHER), Some(&error.to_string()));
}

#[cold]
fn failed(span: &Span, kind: &'static str, description: Option<&str>) {
    span.record(ERROR_TYPE, kind).record(STATUS, FAILED);
    if let Some(description) = description {
        span.record(STATUS_DESCRIPTION, description);
    }
}

/// The type of an error that has a type. Text has none.
fn kind_of<E: 'static>() -> &'static str {
    let kind = TypeId::of::<E>();
    match kind == TypeId::of::<String>() || kind == TypeId::of::<&'static str>() {
        true => OTHER,
        false => type_name::<E>(),
    }
}
