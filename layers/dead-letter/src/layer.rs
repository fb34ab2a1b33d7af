//! The layer: plain configuration.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use tower_layer::Layer;
use tower_mq_delivery::{BoxError, ErrorPolicy, Message, Publication, Receipt};
use tower_service::Service;

use crate::{DeadLetter, backoff::Backoff};

/// Stores a confirmed copy of each rejected message before it is acked. See the [crate's docs](crate).
///
/// # Order
/// Inside Settle; outside Retry, Batch, Timeout and the handler.
#[derive(Clone, Debug)]
#[must_use]
pub struct DeadLetterLayer<P> {
    publisher: P,
    settings: Settings,
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) attempts: u32,
    pub(crate) duplicates: u32,
    pub(crate) backoff: Backoff,
    pub(crate) timeout: Duration,
    pub(crate) policy: Option<ErrorPolicy>,
    pub(crate) destination: Option<Arc<Destination>>,
}

type Destination = dyn Fn(&Message) -> Cow<'static, str> + Send + Sync;

impl Settings {
    pub(crate) const fn new() -> Self {
        Self {
            attempts: 8,
            duplicates: 1,
            backoff: Backoff { from: Duration::from_millis(100), to: Duration::from_secs(10) },
            timeout: Duration::from_secs(30),
            policy: None,
            destination: None,
        }
    }
}

impl<P> DeadLetterLayer<P>
where
    P: Service<Publication, Response = Receipt, Future: Send> + Clone + Send + 'static,
    P::Error: Into<BoxError>,
{
    /// Publishes dead letters with this publisher, to its own destination: `publisher.to("orders.dead")`.
    ///
    /// Any service of publications will do, if it answers when the copy is stored. It is cloned for each try, and asked
    /// whether it is ready only then: a publisher in trouble holds up nothing but rejects.
    pub const fn new(publisher: P) -> Self {
        Self { publisher, settings: Settings::new() }
    }

    /// Where the dead letter of each message goes. Default: where the publisher sends what names no destination.
    ///
    /// ```
    /// # use tower::service_fn;
    /// # use tower_mq_dead_letter::DeadLetterLayer;
    /// # use tower_mq_delivery::{BoxError, Publication, Receipt, Value};
    /// # let publisher = service_fn(|_: Publication| async { Ok::<_, BoxError>(Receipt::new()) });
    /// let layer = DeadLetterLayer::new(publisher).destination(|message| {
    ///     let tenant = message.header("tenant");
    ///     let tenant = tenant.as_ref().and_then(Value::as_str).unwrap_or("nobody");
    ///     format!("{tenant}.dead")
    /// });
    /// # let _ = layer;
    /// ```
    pub fn destination<F, D>(mut self, of: F) -> Self
    where
        F: Fn(&Message) -> D + Send + Sync + 'static,
        D: Into<Cow<'static, str>>,
    {
        self.settings.destination = Some(Arc::new(move |message| of(message).into()));
        self
    }

    /// What happens to a message whose handler failed without a decision of its own. Default: the policy of the settle
    /// layer, which travels in the message.
    pub fn on_error(mut self, policy: ErrorPolicy) -> Self {
        self.settings.policy = Some(policy);
        self
    }

    /// How often a copy is published at most, until its message is released. At least once. Default: 8.
    pub const fn attempts(mut self, most: u32) -> Self {
        self.settings.attempts = if most == 0 { 1 } else { most };
        self
    }

    /// How many copies of one delivery there may be beyond the first. Default: 1.
    ///
    /// It is also how often a try is repeated that may have stored the copy: [how many copies](crate#how-many-copies). Zero
    /// means that the message is released after the first such try. With a publisher that does not
    /// [say](tower_mq_delivery::NotStored) which errors are certain, a larger number bridges a longer outage.
    pub const fn duplicates(mut self, most: u32) -> Self {
        self.settings.duplicates = most;
        self
    }

    /// The pause after a try that failed: `from` at first, doubled each time, up to `to`. Half of it is left to chance: 1 s
    /// is something between 0.5 s and 1 s. Default: from 100 ms to 10 s.
    pub const fn backoff(mut self, from: Duration, to: Duration) -> Self {
        self.settings.backoff = Backoff { from, to };
        self
    }

    /// How long one try may take: until the publisher is ready, and until it has the confirmation. Default: 30 s, in which
    /// a publisher notices by itself that its broker has fallen silent, and says so.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = limit;
        self
    }
}

impl<S, P: Clone> Layer<S> for DeadLetterLayer<P> {
    type Service = DeadLetter<S, P>;

    fn layer(&self, inner: S) -> DeadLetter<S, P> {
        DeadLetter::with(inner, self.publisher.clone(), self.settings.clone())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("attempts", &self.attempts)
            .field("duplicates", &self.duplicates)
            .field("backoff", &self.backoff)
            .field("timeout", &self.timeout)
            .field("policy", &self.policy)
            .field("destination", &self.destination.is_some())
            .finish()
    }
}
