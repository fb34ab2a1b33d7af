//! Publications: the way out.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_mq_delivery::{Publication, Value};
use tower_service::Service;
use tracing::{Level, Span, field};

use crate::{
    TraceContext,
    convention::{
        BODY_SIZE, CONVERSATION_ID, DESTINATION, ERROR_TYPE, KIND, MESSAGE_ID, NAME, OPERATION_NAME,
        OPERATION_TYPE, OUTCOME, PRODUCER, PUBLISH, RECEIPT, SEND, STATUS, STATUS_DESCRIPTION, SYSTEM,
        TRACEPARENT, TRACESTATE,
    },
    future::ResponseFuture,
    otel,
    span::{Name, span_of, system, wanted},
};

/// Sends each publication in a span of its own, whose context goes along in its headers. Made by
/// [`TraceLayer::publisher`](crate::TraceLayer::publisher).
///
/// | the publication | goes out with |
/// |---|---|
/// | has a `traceparent`, or its message does, which was made here | that one, unchanged; the span links to it |
/// | forwards a message that a source took, as a dead letter does | the context of the span, which links to that of the message |
/// | else | the context of the span |
///
/// Where there is no OpenTelemetry, as without the feature `opentelemetry`, a span has no context, and a publication goes
/// out with the headers that it has. [`TraceContext::inject`] gives it those of the message that it follows from.
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_mq_delivery::{BoxError, Message, Publication, Receipt};
/// use tower_mq_trace::TraceLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let publisher = service_fn(async |_: Publication| Ok::<_, BoxError>(Receipt::new()));
/// let publisher = TraceLayer::publisher().system("rabbitmq").destination("bills").layer(publisher);
/// publisher.oneshot(Publication::new(Message::new("the bill"))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PublisherLayer {
    level: Level,
    system: Option<&'static str>,
    destination: Option<Arc<str>>,
}

impl PublisherLayer {
    /// Spans of level INFO.
    pub const fn new() -> Self {
        Self { level: Level::INFO, system: None, destination: None }
    }

    /// The level of the spans. Default: INFO.
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// The kind of broker, the OpenTelemetry value of `messaging.system`. Default: nothing is said, as publications do
    /// not know it.
    pub const fn system(mut self, system: &'static str) -> Self {
        self.system = Some(system);
        self
    }

    /// The queue or topic of publications that name none. Default: nothing is said.
    pub fn destination(mut self, destination: impl Into<Arc<str>>) -> Self {
        self.destination = Some(destination.into());
        self
    }
}

impl Default for PublisherLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for PublisherLayer {
    type Service = Publisher<S>;

    fn layer(&self, inner: S) -> Publisher<S> {
        Publisher { inner, settings: self.clone() }
    }
}

/// Sends each publication in a span of its own. Built by [`PublisherLayer`].
///
/// # Cancel safety
/// As the inner service. A response future that is dropped before its end closes its span, with the outcome `dropped`.
///
/// # Cost
/// Without a subscriber that wants the level: the look at one number. With the feature `opentelemetry`, also the look
/// for a context around.
#[derive(Clone, Debug)]
pub struct Publisher<S> {
    inner: S,
    settings: PublisherLayer,
}

impl<S> Publisher<S> {
    /// Traces as [`PublisherLayer::new`] says.
    pub const fn new(inner: S) -> Self {
        Self { inner, settings: PublisherLayer::new() }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S> Service<Publication> for Publisher<S>
where
    S: Service<Publication>,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, publication: Publication) -> Self::Future {
        let span = self.settings.span(&publication);
        let publication = with_context(&span, publication);
        ResponseFuture::new(span, || self.inner.call(publication))
    }
}

impl PublisherLayer {
    fn span(&self, publication: &Publication) -> Span {
        if !wanted(self.level) {
            return Span::none();
        }
        let (message, destination) = (&publication.message, publication.destination.as_deref());
        let destination = destination.or(self.destination.as_deref());
        span_of!(
            self.level,
            PUBLISH,
            { NAME } = field::display(Name(PUBLISH, destination)),
            { KIND } = PRODUCER,
            { SYSTEM } = self.system,
            { OPERATION_NAME } = PUBLISH,
            { OPERATION_TYPE } = SEND,
            { DESTINATION } = destination,
            { MESSAGE_ID } = message.id().as_deref(),
            { CONVERSATION_ID } = message.correlation_id().as_deref(),
            { BODY_SIZE } = message.payload().len(),
            { RECEIPT } = field::Empty,
            { OUTCOME } = field::Empty,
            { ERROR_TYPE } = field::Empty,
            { STATUS } = field::Empty,
            { STATUS_DESCRIPTION } = field::Empty,
        )
    }
}

/// The publication with the context that it goes out with.
fn with_context(span: &Span, publication: Publication) -> Publication {
    if !otel::LINKS {
        return publication;
    }
    let set =
        |name| publication.headers.iter().rev().find(|(header, _)| header == name).map(|(_, value)| value);
    if let Some(given) = set(TRACEPARENT) {
        link(span, given, set(TRACESTATE));
        return publication;
    }
    if let Some(given) = publication.message.header(TRACEPARENT) {
        link(span, &given, publication.message.header(TRACESTATE).as_ref());
        // A message that no source took was made here, with all its headers.
        if system(&publication.message).is_none() && publication.message.origin().name().is_empty() {
            return publication;
        }
    }
    match otel::current(span) {
        Some(context) => context.inject(publication),
        None => publication,
    }
}

fn link(span: &Span, traceparent: &Value<'_>, tracestate: Option<&Value<'_>>) {
    // Who has set something else knows why.
    if let Ok(context) = TraceContext::read(traceparent, tracestate) {
        otel::link(span, &context, None);
    }
}
