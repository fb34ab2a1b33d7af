//! The layer: plain configuration.

use std::{fmt, marker::PhantomData, sync::Arc};

use tower_layer::Layer;
use tower_mq_delivery::Message;
use tower_service::Service;

use crate::{LaneKey, Partition, key::KeyFn};

/// More places than this are not given: each costs memory from the start.
const MOST_PLACES: usize = 1 << 20;

/// Handles deliveries side by side, those of one key in order.
///
/// | | at most n at a time | in order | a slow key holds up |
/// |---|---|---|---|
/// | [`by_key(n)`](Self::by_key) | n lanes | each lane, so each key | the keys of its lane |
/// | [`per_key(n)`](Self::per_key) | n workers | each key | itself |
/// | [`unordered(n)`](Self::unordered) | n workers | nothing | nobody |
///
/// `R` is the request, [`Delivery`](tower_mq_delivery::Delivery) or [`Message`]; it is always inferred.
#[must_use]
pub struct PartitionLayer<R> {
    pub(crate) mode: Mode,
    pub(crate) n: usize,
    capacity: usize,
    pub(crate) inline: bool,
    pub(crate) key: Option<KeyFn>,
    request: PhantomData<fn(R)>,
}

/// Who is in order with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    ByKey,
    PerKey,
    Unordered,
}

impl<R> PartitionLayer<R> {
    const fn new(mode: Mode, n: usize) -> Self {
        Self { mode, n, capacity: 1024, inline: false, key: None, request: PhantomData }
    }

    /// `lanes` ordered lanes beside each other. A delivery goes to the lane of its key: [`LaneKey`] says which. One
    /// without a key goes to the next lane, round robin.
    ///
    /// Choose it when the work is kept apart by lane (a batch or a connection of its own for each), or when the lane of
    /// a key must be known. A lane waits for its slowest key.
    ///
    /// # Panics
    /// If `lanes` is 0.
    #[track_caller]
    pub const fn by_key(lanes: usize) -> Self {
        assert!(lanes > 0, "`PartitionLayer::by_key` needs at least 1 lane");
        Self::new(Mode::ByKey, lanes)
    }

    /// `workers` workers, each of which takes the next delivery whose key nobody works on. A hot or slow key holds up
    /// only itself, and keys never share a lane.
    ///
    /// A key goes to the end of the line after each of its deliveries, so that a hot one leaves room for the others.
    ///
    /// # Panics
    /// If `workers` is 0.
    #[track_caller]
    pub const fn per_key(workers: usize) -> Self {
        assert!(workers > 0, "`PartitionLayer::per_key` needs at least 1 worker");
        Self::new(Mode::PerKey, workers)
    }

    /// `workers` workers that take what comes, whatever its key. Started in the order taken, but *finished in any
    /// order, also within a key*.
    ///
    /// # Panics
    /// If `workers` is 0.
    #[track_caller]
    pub const fn unordered(workers: usize) -> Self {
        assert!(workers > 0, "`PartitionLayer::unordered` needs at least 1 worker");
        Self::new(Mode::Unordered, workers)
    }

    /// Goes by another key than the message's own: part of it, a header, anything in the message.
    ///
    /// ```
    /// # use tower_mq_delivery::Message;
    /// use tower_mq_partition::{LaneKey, PartitionLayer};
    ///
    /// let by_tenant = PartitionLayer::<Message>::by_key(8)
    ///     .with(|message| LaneKey::maybe(message.header("tenant").as_ref().and_then(|tenant| tenant.as_str())));
    /// ```
    ///
    /// It is called once for each delivery, before the delivery is queued, on the thread that calls the service.
    /// Without effect on [`unordered`](Self::unordered).
    pub fn with(mut self, key: impl Fn(&Message) -> LaneKey + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// How many deliveries may be queued and running at a time, in all lanes together. Default: 1,024.
    ///
    /// The service is not ready when they are all there. Let it be at least the source's window (prefetch, credit):
    /// then a slow lane has room to queue while the others go on. A number below the number of lanes or workers is
    /// raised to it; 1,048,576 is the most, and more workers than that are never started.
    pub const fn capacity(mut self, deliveries: usize) -> Self {
        self.capacity = deliveries;
        self
    }

    /// Handles the deliveries inside their response futures, in the task that polls them, instead of in tasks of their
    /// own.
    ///
    /// For handlers that mostly wait: nothing moves between threads, no runtime is needed, and each delivery costs
    /// less. Handlers that compute run one at a time. Whoever holds the response future of a running delivery without
    /// polling or dropping it stops its lane; `serve` never does.
    pub const fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    pub(crate) fn places(&self) -> u32 {
        let places = self.capacity.max(self.n).min(MOST_PLACES);
        u32::try_from(places).unwrap_or(u32::MAX)
    }
}

impl<S, R> Layer<S> for PartitionLayer<R>
where
    S: Service<R> + Clone,
{
    type Service = Partition<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Partition::new(inner, self)
    }
}

// By hand, because `R` need not be `Clone` or `Debug`.
impl<R> Clone for PartitionLayer<R> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), request: PhantomData, ..*self }
    }
}

impl<R> fmt::Debug for PartitionLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionLayer")
            .field("mode", &self.mode)
            .field("n", &self.n)
            .field("capacity", &self.capacity)
            .field("inline", &self.inline)
            .field("own_key", &self.key.is_some())
            .finish()
    }
}
