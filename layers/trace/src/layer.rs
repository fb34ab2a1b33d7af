//! The layer: plain configuration.

use tower_layer::Layer;
use tracing::Level;

use crate::{PublisherLayer, Trace};

/// Runs each delivery in a span of its own. See the [crate's docs](crate).
///
/// # Order
/// Outside Partition, which carries the span into the lane: then the wait in the lane is part of it. Inside Settle it
/// times the handling alone, and inside Batch there is one span for each batch. It may stand in several places.
#[derive(Clone, Debug)]
#[must_use]
pub struct TraceLayer {
    pub(crate) level: Level,
    pub(crate) continues: bool,
}

impl TraceLayer {
    /// Spans of level INFO, which link to the spans of the messages' senders.
    pub const fn new() -> Self {
        Self { level: Level::INFO, continues: false }
    }

    /// The level of the spans. Default: INFO. A subscriber that does not want the level costs as much as none.
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Makes the span of a message a child of its sender's span, in the sender's trace. Default: off, it begins a trace
    /// of its own, or is part of the one that it is made in, and links to its sender's span.
    ///
    /// The convention prefers links: a batch has several senders, what is handled hours later stretches the trace of
    /// its sender, and a span that is in a trace already would be torn out of it. Batches always link. A child links
    /// too, to its sender's span, and to the span that it was torn out of.
    ///
    /// Without the feature `opentelemetry` there are neither links nor remote parents, and this does nothing.
    pub const fn continue_trace(mut self) -> Self {
        self.continues = true;
        self
    }

    /// A layer for publishers: each publication has a span of its own, whose context goes along in its headers.
    pub const fn publisher() -> PublisherLayer {
        PublisherLayer::new()
    }
}

impl Default for TraceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner, settings: self.clone() }
    }
}
