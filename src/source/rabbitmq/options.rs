//! How a queue is consumed.

use std::{sync::Arc, time::Duration};

use tower_mq_delivery::{Attempts, Capabilities, Origin};

use super::{
    connect::{Broker, Login},
    prefetched::Prefetched,
    pump::Pump,
    stream::Deliveries,
    tried::Tried,
    value::short,
};
use crate::source::{Control, Reconnect, SourceError, SourceErrorKind, reconnect::Established};

/// What the broker does with a reject. It is the user's to say: without a dead-letter exchange the message is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReject {
    /// The queue has a dead-letter exchange, and rejects go there. The source cannot see whether it has.
    BrokerDeadLetters,
    /// Rejects are thrown away.
    Discard,
}

/// A queue to consume, and how.
///
/// ```no_run
/// # async fn example() -> Result<(), tower_mq::BoxError> {
/// use tower_mq::source::rabbitmq::{OnReject, Queue};
///
/// let orders = Queue::new("orders")
///     .prefetch(256)
///     .on_reject(OnReject::BrokerDeadLetters)
///     .connect("amqp://guest:guest@localhost:5672/%2f")
///     .await?;
/// # drop(orders);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Queue {
    name: String,
    prefetch: u16,
    key_header: String,
    consumer_tag: String,
    on_reject: Option<OnReject>,
    reconnect: Reconnect,
    login: Login,
}

impl Queue {
    /// The queue of this name. It must be there.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            prefetch: 256,
            key_header: "amqp-partition-key".to_owned(),
            consumer_tag: String::new(),
            on_reject: None,
            reconnect: Reconnect::new(),
            login: Login::new(),
        }
    }

    /// The window: how many deliveries are taken and not settled, at most. Default: 256. Zero, which the broker takes
    /// for "no limit", is refused by [`connect`](Self::connect).
    pub const fn prefetch(mut self, window: u16) -> Self {
        self.prefetch = window;
        self
    }

    /// The header that holds a message's key: text, bytes, or a number, which becomes its decimal text. A message
    /// without it has no key; one with an empty text has an empty key. Default: `amqp-partition-key`.
    pub fn key_header(mut self, name: impl Into<String>) -> Self {
        self.key_header = name.into();
        self
    }

    /// What the broker does with rejects. Default: nothing is said, and so a reject becomes a release, at most one
    /// each second for a message, with a warning in health and log.
    pub const fn on_reject(mut self, on_reject: OnReject) -> Self {
        self.on_reject = Some(on_reject);
        self
    }

    /// How a lost connection is replaced, and for how long the first one is tried.
    pub const fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// How the broker's user interface calls this consumer. Default: the broker makes a name.
    pub fn consumer_tag(mut self, tag: impl Into<String>) -> Self {
        self.consumer_tag = tag.into();
        self
    }

    /// How the broker's user interface calls the connection, in 1,024 bytes at most. Default: `tower-mq` and the queue.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.login.connection_name = Some(name.into());
        self
    }

    /// How often broker and source show each other that they are alive, in whole seconds. A broker that falls silent
    /// is noticed after twice as long, and called again after three and a half times as long: by then it has noticed,
    /// too, and given back what it kept for the dead connection. Default: what the URL says (`?heartbeat=10`), else 10 s.
    pub const fn heartbeat(mut self, interval: Duration) -> Self {
        self.login.heartbeat = Some(interval);
        self
    }

    /// How long one attempt to connect may take. Default: 10 s.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.login.connect_timeout = limit;
        self
    }

    /// Connects to the broker and consumes.
    ///
    /// The URL is `amqp://user:password@host:port/virtual-host`, percent-encoded; user and password default to
    /// `guest`, the port to 5672, the virtual host to `/`, which is written `%2f`.
    ///
    /// # Errors
    /// At once if the broker refuses for good: wrong password, no such queue. After
    /// [`Reconnect::first`](crate::source::Reconnect::first) if it cannot be reached.
    ///
    /// # Panics
    /// Outside of a tokio runtime. The connection lives in the runtime that this is called in.
    pub async fn connect(self, url: &str) -> Result<Deliveries, SourceError> {
        let what = format!("queue `{}`", self.name);
        let wrong =
            |error: String| SourceError::new(SourceErrorKind::Configuration, format!("{what}: {error}"));
        if self.prefetch == 0 {
            return Err(wrong("prefetch 0 would be no limit at all; set it to 1 or more".to_owned()));
        }
        let queue = short(&self.name).map_err(|error| wrong(error.to_string()))?;
        let consumer_tag = short(&self.consumer_tag).map_err(|error| wrong(error.to_string()))?;
        let broker = Broker::new(url, &what, &self.login)?;
        let mut capabilities = Capabilities::unknown();
        // True on quorum queues, and the source does not know which kind it is.
        capabilities.release_counts = true;
        capabilities.attempts = Attempts::Source;
        capabilities.reject_has_target = self.on_reject.is_some();
        let window = usize::from(self.prefetch);
        let control = Control::new(Arc::new(Origin::new(self.name, "rabbitmq", window, capabilities)));
        let pump = Pump {
            control: control.clone(),
            broker,
            reconnect: self.reconnect,
            queue,
            consumer_tag,
            prefetch: self.prefetch,
            key_header: self.key_header.into(),
            on_reject: self.on_reject,
            prefetched: Arc::new(Prefetched::default()),
            tried: Arc::new(Tried::new(window)),
        };
        match pump.connect(None, Duration::ZERO).await? {
            Established::Yes(link) => Ok(Deliveries::new(control, pump, link)),
            // Nobody has the handle yet.
            Established::Closed => Err(wrong("closed before it was connected".to_owned())),
        }
    }
}
