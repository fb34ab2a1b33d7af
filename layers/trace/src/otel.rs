//! OpenTelemetry: what `tracing` has no words for. Without the feature nothing of it happens.

#[cfg(feature = "opentelemetry")]
pub(crate) use with::{LINKS, continue_in, current, link};
#[cfg(not(feature = "opentelemetry"))]
pub(crate) use without::{LINKS, continue_in, current, link};

#[cfg(feature = "opentelemetry")]
mod with {
    use opentelemetry::{
        Context, KeyValue, SpanId, TraceFlags, TraceId,
        trace::{SpanContext, TraceContextExt as _, TraceState},
    };
    use tower_mq_delivery::Message;
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    use crate::{
        TraceContext,
        convention::{BODY_SIZE, MESSAGE_ID},
    };

    /// Links are worth reading a context for.
    pub(crate) const LINKS: bool = true;

    fn remote(context: &TraceContext) -> SpanContext {
        let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
        // What it does not take it does not pass on.
        let state = context.tracestate().and_then(|state| state.parse().ok()).unwrap_or(TraceState::NONE);
        let (trace, span) =
            (TraceId::from_bytes(context.trace_id()), SpanId::from_bytes(context.parent_id()));
        SpanContext::new(trace, span, flags, true, state)
    }

    /// Links to the sender's span; to say which one it is among those of a batch, to the one of `member`.
    pub(crate) fn link(span: &Span, context: &TraceContext, member: Option<&Message>) {
        let mut attributes = Vec::new();
        if let Some(member) = member {
            attributes.extend(member.id().map(|id| KeyValue::new(MESSAGE_ID, id.into_owned())));
            let size = i64::try_from(member.payload().len()).unwrap_or(i64::MAX);
            attributes.push(KeyValue::new(BODY_SIZE, size));
        }
        span.add_link_with_attributes(remote(context), attributes);
    }

    /// Makes `span`, which nobody has entered, a child of the sender's; it links to what it would have been a part of.
    pub(crate) fn continue_in(span: &Span, context: &TraceContext) {
        let around = around();
        // Fails if there is no OpenTelemetry: then there is nothing to continue.
        if span.set_parent(Context::new().with_remote_span_context(remote(context))).is_ok() {
            span.add_link(around);
        }
    }

    /// The context of a span; of the one around, if it has none.
    pub(crate) fn current(span: &Span) -> Option<TraceContext> {
        let own = span.context().span().span_context().clone();
        let context = if own.is_valid() { own } else { around() };
        let (trace, span) = (context.trace_id().to_bytes(), context.span_id().to_bytes());
        let state = context.trace_state().header();
        context.is_valid().then(|| TraceContext::new(trace, span, context.is_sampled(), &state))
    }

    fn around() -> SpanContext {
        let own = Span::current().context().span().span_context().clone();
        if own.is_valid() { own } else { Context::current().span().span_context().clone() }
    }
}

#[cfg(not(feature = "opentelemetry"))]
mod without {
    use tower_mq_delivery::Message;
    use tracing::Span;

    use crate::TraceContext;

    pub(crate) const LINKS: bool = false;

    pub(crate) const fn link(_: &Span, _: &TraceContext, _: Option<&Message>) {}

    pub(crate) const fn continue_in(_: &Span, _: &TraceContext) {}

    pub(crate) const fn current(_: &Span) -> Option<TraceContext> {
        None
    }
}
