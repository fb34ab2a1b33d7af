//! How a span begins.

use std::{any::TypeId, fmt};

use tower_mq_delivery::{Batch, Carry, Message};
use tracing::{Level, Span, field, level_filters::LevelFilter};

use crate::{
    TraceContext, TraceLayer,
    context::Hex,
    convention::{
        ATTEMPT, BODY_SIZE, CONSUMER, CONVERSATION_ID, DESTINATION, ERROR_TYPE, KIND, MESSAGE_COUNT,
        MESSAGE_ID, NAME, OPERATION_NAME, OPERATION_TYPE, OUTCOME, PARENT_ID, PROCESS, STATUS,
        STATUS_DESCRIPTION, SYSTEM, TRACE_ID,
    },
    otel,
};

/// Makes a span of a level that is not known before: a place in the code has one level, so there are five of them.
macro_rules! span_of {
    ($level:expr, $name:expr, $($field:tt)*) => {
        match $level {
            Level::ERROR => tracing::error_span!($name, $($field)*),
            Level::WARN => tracing::warn_span!($name, $($field)*),
            Level::INFO => tracing::info_span!($name, $($field)*),
            Level::DEBUG => tracing::debug_span!($name, $($field)*),
            Level::TRACE => tracing::trace_span!($name, $($field)*),
        }
    };
}
pub(crate) use span_of;

/// Whether anybody may want spans of this level.
#[inline]
pub(crate) fn wanted(level: Level) -> bool {
    level <= LevelFilter::current()
}

/// The span of a request; [`Span::none`], if nobody wants it.
#[inline(always)]
pub(crate) fn of<R: Carry + 'static>(settings: &TraceLayer, request: &R) -> Span {
    if !wanted(settings.level) {
        return Span::none();
    }
    // A batch of one is a batch, too.
    let is_batch = TypeId::of::<R>() == TypeId::of::<Batch<Message>>();
    begin(settings, request.messages(), is_batch)
}

#[cold]
fn begin(settings: &TraceLayer, messages: &[Message], is_batch: bool) -> Span {
    match messages {
        [] => Span::none(),
        [one] if !is_batch => message(settings, one),
        [first, others @ ..] => batch(settings, first, others),
    }
}

fn message(settings: &TraceLayer, message: &Message) -> Span {
    let (destination, context) = (message.destination(), TraceContext::of(message));
    let span = span_of!(
        settings.level,
        PROCESS,
        { NAME } = field::display(Name(PROCESS, Some(&destination))),
        { KIND } = CONSUMER,
        { SYSTEM } = system(message),
        { OPERATION_NAME } = PROCESS,
        { OPERATION_TYPE } = PROCESS,
        { DESTINATION } = named(&destination),
        { MESSAGE_ID } = message.id().as_deref(),
        { CONVERSATION_ID } = message.correlation_id().as_deref(),
        { BODY_SIZE } = message.payload().len(),
        { ATTEMPT } = message.attempt(),
        { TRACE_ID } = context.as_ref().map(|context| field::display(Hex(&context.trace_id))),
        { PARENT_ID } = context.as_ref().map(|context| field::display(Hex(&context.parent_id))),
        { OUTCOME } = field::Empty,
        { ERROR_TYPE } = field::Empty,
        { STATUS } = field::Empty,
        { STATUS_DESCRIPTION } = field::Empty,
    );
    if let Some(context) = context.filter(|_| !span.is_disabled()) {
        if settings.continues {
            otel::continue_in(&span, &context);
        }
        otel::link(&span, &context, None);
    }
    span
}

fn batch(settings: &TraceLayer, first: &Message, others: &[Message]) -> Span {
    let destination = first.destination();
    // What is not true of all members is not said of the batch.
    let common = others.iter().all(|member| member.destination() == destination).then_some(&*destination);
    let span = span_of!(
        settings.level,
        PROCESS,
        { NAME } = field::display(Name(PROCESS, common)),
        { KIND } = CONSUMER,
        { SYSTEM } = system(first),
        { OPERATION_NAME } = PROCESS,
        { OPERATION_TYPE } = PROCESS,
        { DESTINATION } = common.and_then(named),
        { MESSAGE_COUNT } = others.len() + 1,
        { OUTCOME } = field::Empty,
        { ERROR_TYPE } = field::Empty,
        { STATUS } = field::Empty,
        { STATUS_DESCRIPTION } = field::Empty,
    );
    if otel::LINKS && !span.is_disabled() {
        for member in std::iter::once(first).chain(others) {
            if let Some(context) = TraceContext::of(member) {
                otel::link(&span, &context, Some(member));
            }
        }
    }
    span
}

/// The kind of broker, where the source says it.
pub(crate) fn system(message: &Message) -> Option<&'static str> {
    Some(message.origin().system()).filter(|system| !system.is_empty())
}

fn named(destination: &str) -> Option<&str> {
    Some(destination).filter(|name| !name.is_empty())
}

/// The name of a span: an operation, and what it is performed on.
pub(crate) struct Name<'a>(pub(crate) &'static str, pub(crate) Option<&'a str>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        match self.1 {
            None | Some("") => Ok(()),
            Some(destination) => write!(f, " {destination}"),
        }
    }
}
