//! The layer: plain configuration.

use tower_layer::Layer;
use tower_mq_delivery::ErrorPolicy;

use crate::Settler;

/// Settles each delivery exactly once, whatever becomes of its handler. See the [crate's docs](crate).
///
/// # Order
/// Inside Partition; outside everything that works on messages.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SettleLayer {
    pub(crate) policy: Option<ErrorPolicy>,
    pub(crate) before: bool,
    pub(crate) confirmed: bool,
}

impl SettleLayer {
    /// Settles when the handler has ended, by the default policy for errors, and goes on when the source has the
    /// decision.
    pub const fn new() -> Self {
        Self { policy: None, before: false, confirmed: false }
    }

    /// What happens to a message whose handler failed without a decision of its own. Default:
    /// [`ErrorPolicy::retry`]`(5)`.
    ///
    /// The policy travels in the message, so a dead-letter layer inside this one judges by it, too.
    pub fn on_error(mut self, policy: ErrorPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Acks first and handles then: at most once instead of at least once. Default: off.
    ///
    /// For messages that are worth less than a second handling costs. A handler that fails, panics or is cancelled
    /// loses its message; errors are logged and nothing more. If the ack is known to have failed, the handler is not
    /// run: the message comes again. Add [`confirmed`](Self::confirmed) where the broker confirms, or a connection
    /// that is lost right after the ack still brings the message twice.
    pub const fn before(mut self) -> Self {
        self.before = true;
        self
    }

    /// Ends the response only when the broker has confirmed the settlement. Default: off, it ends when the source has
    /// the decision, which is safe: a source tells the broker, or the message comes again.
    ///
    /// Where the broker does not confirm, this waits until the decision is sent. Together with
    /// [`before`](Self::before), the inner service is called at once, as its readiness cannot be kept, but its future
    /// is first polled when the ack is confirmed.
    ///
    /// # Cost
    /// A round trip to the broker for each delivery, in which its worker does nothing else. A source gathers
    /// settlements: expect up to its flush interval on top.
    pub const fn confirmed(mut self) -> Self {
        self.confirmed = true;
        self
    }
}

impl<S> Layer<S> for SettleLayer {
    type Service = Settler<S>;

    fn layer(&self, inner: S) -> Settler<S> {
        Settler { inner, settings: self.clone() }
    }
}
