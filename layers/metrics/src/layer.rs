//! The layer: where it stands, and what it shares.

use std::{fmt, sync::Arc};

use tower_layer::Layer;
use tower_mq_delivery::DynError;

use crate::{Metrics, MetricsObserver, destinations::Place, observer::Shared};

/// Measures what passes it, by its place: [`delivery`](Self::delivery) or [`process`](Self::process). See the
/// [crate's docs](crate).
///
/// Clones share what they count. Stacks over sources of one name use clones of one layer: two layers do not know of each
/// other, and would contradict each other in what they say of the [window](crate::own::WINDOW_IN_USE).
#[derive(Clone)]
#[must_use]
pub struct MetricsLayer {
    pub(crate) shared: Arc<Shared>,
}

impl MetricsLayer {
    /// Counts each delivery once and times it from taken to settled; shows the window; counts what other layers, the
    /// driver and the source report.
    ///
    /// At the first delivery of a source it adds itself to its observers. To hear of what happens before, give
    /// [`observer`](Self::observer) to `serve`.
    ///
    /// # Order
    /// Outermost.
    pub fn delivery() -> Self {
        Self::at(Place::Delivery)
    }

    /// Times each try of a handler, and names its errors.
    ///
    /// # Order
    /// Next to the handler, inside of Retry, Batch and Timeout.
    pub fn process() -> Self {
        Self::at(Place::Process)
    }

    fn at(place: Place) -> Self {
        Self { shared: Arc::new(Shared::new(place, None)) }
    }

    /// Names errors for the label `error.type` of [`process`](Self::process), instead of its own names for them; `None`
    /// leaves an error to these. It is asked for errors that are boxed: `handler(f)` boxes them, and so does
    /// `AnswerLayer` around a service.
    ///
    /// Its own names are `timeout` (tokio's, or one of the operating system), `panic`, `cancelled` (dropped before its
    /// end), `release`, `retry` and `reject` (what the error or the handler decided), and `_OTHER`. The first 32 names
    /// that this function gives for a source are kept apart; what comes after them is `_OTHER`, too.
    ///
    /// ```
    /// use tower_mq_delivery::DynError;
    /// use tower_mq_metrics::MetricsLayer;
    ///
    /// fn name(error: &DynError) -> Option<&'static str> {
    ///     error.is::<tower::timeout::error::Elapsed>().then_some("timeout")
    /// }
    ///
    /// let _ = MetricsLayer::process().error_type(name);
    /// ```
    pub fn error_type(self, name: fn(&DynError) -> Option<&'static str>) -> Self {
        Self { shared: Arc::new(Shared::new(self.shared.place(), Some(name))) }
    }

    /// What [`delivery`](Self::delivery) adds to the observers of a source, for those who add it themselves:
    /// `serve(..).observer(metrics.observer())`. It hears from then on, for example of connections that are lost before
    /// the first delivery. It is told of everything once, although the layer adds it, too.
    pub fn observer(&self) -> MetricsObserver {
        MetricsObserver(self.shared.clone())
    }
}

impl<S> Layer<S> for MetricsLayer {
    type Service = Metrics<S>;

    fn layer(&self, inner: S) -> Metrics<S> {
        Metrics { inner, layer: self.clone() }
    }
}

impl fmt::Debug for MetricsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsLayer").field("place", &self.shared.place()).finish_non_exhaustive()
    }
}
