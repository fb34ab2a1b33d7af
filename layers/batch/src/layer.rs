//! The layer: plain configuration.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::Arc,
    time::Duration,
};

use tower_layer::Layer;
use tower_mq_delivery::Message;

use crate::Batcher;

type GroupFn = Arc<dyn Fn(&Message) -> u64 + Send + Sync>;

/// Gathers messages into batches. See the [crate's docs](crate).
///
/// # Order
/// Inside Partition and Settle: each lane gathers ordered batches of its own. Outside Retry, Timeout and the handler,
/// which then see a whole batch.
#[derive(Clone)]
#[must_use]
pub struct BatchLayer {
    pub(crate) size: usize,
    pub(crate) wait: Duration,
    pub(crate) ready: bool,
    pub(crate) max_bytes: usize,
    pub(crate) groups: usize,
    group: Option<GroupFn>,
    capacity: usize,
}

impl BatchLayer {
    /// Batches of at most `size` members. One that is not full is closed 10 ms after its first member came: see
    /// [`wait`](Self::wait) and [`ready`](Self::ready).
    ///
    /// A source holds at most its window (prefetch, credit) at a time. A batch that holds the whole window is closed at
    /// once, as nothing more can come; if `size` is larger than the window, that is warned of, in the log and in the
    /// source's health.
    ///
    /// # Panics
    /// If `size` is 0.
    #[track_caller]
    pub const fn new(size: usize) -> Self {
        assert!(size > 0, "`BatchLayer::new` needs a size of at least 1");
        Self {
            size,
            wait: Duration::from_millis(10),
            ready: false,
            max_bytes: usize::MAX,
            groups: 64,
            group: None,
            capacity: 1024,
        }
    }

    /// Closes a batch this long after its *first* member came; later members do not put it off. Default: 10 ms.
    ///
    /// While another batch of the same driver or lane runs, nothing could start, so it gathers on until that one has
    /// ended.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Takes what is there: closes a batch as soon as its driver or lane finds that its source has nothing more to give
    /// at the moment. Default: off.
    ///
    /// A single message then waits for nobody, and a backlog still makes full batches. [`wait`](Self::wait) goes on as
    /// the fallback, for what a layer between the lane and this one holds back: a duplicate, say, that waits for a
    /// message in this very batch.
    pub const fn ready(mut self) -> Self {
        self.ready = true;
        self
    }

    /// Closes a batch before its payloads are longer together than `bytes`. Default: no limit.
    ///
    /// A message that is longer by itself goes alone.
    ///
    /// # Panics
    /// If `bytes` is 0.
    #[track_caller]
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        assert!(bytes > 0, "`BatchLayer::max_bytes` needs at least 1 byte");
        self.max_bytes = bytes;
        self
    }

    /// Gathers the messages of each group apart, several batches at a time: by queue, by tenant.
    ///
    /// ```
    /// use tower_mq_batch::BatchLayer;
    ///
    /// let by_queue = BatchLayer::new(100).group_by(|message| message.destination().into_owned());
    /// let by_customer = BatchLayer::new(100).group_by(|message| message.key().cloned());
    /// ```
    ///
    /// A group is known by a hash of 64 bits, with a seed that nobody can guess. Its messages stay in order. Batches of
    /// different groups still run one at a time for each driver or lane, those first that were due first; to run them
    /// side by side, put Partition outside, by the same key ([`with`]).
    ///
    /// It is called once for each message, on the thread that calls the service.
    ///
    /// [`with`]: https://docs.rs/tower-mq-partition/latest/tower_mq_partition/struct.PartitionLayer.html#method.with
    pub fn group_by<G: Hash>(mut self, group: impl Fn(&Message) -> G + Send + Sync + 'static) -> Self {
        let seed = RandomState::new();
        self.group = Some(Arc::new(move |message| seed.hash_one(group(message))));
        self
    }

    /// How many batches may be open at a time, for each driver or lane. Default: 64.
    ///
    /// One more closes the oldest. Messages of different generations never share a batch, so each generation counts as
    /// a group of its own.
    ///
    /// # Panics
    /// If `groups` is 0.
    #[track_caller]
    pub const fn groups(mut self, groups: usize) -> Self {
        assert!(groups > 0, "`BatchLayer::groups` needs at least 1 group");
        self.groups = groups;
        self
    }

    /// How many messages may be in batches at a time, open and running, of all drivers and lanes together. Default:
    /// 1,024.
    ///
    /// The service is not ready when they are all there. Let it be at least the source's window. A number below twice
    /// the size is raised to it, so that a batch can fill while another one runs. When it is used up and nothing runs,
    /// a batch is closed as if it held the whole window, so lanes that share it cannot lock each other up.
    pub const fn capacity(mut self, messages: usize) -> Self {
        self.capacity = messages;
        self
    }

    pub(crate) fn places(&self) -> usize {
        self.capacity.max(self.size.saturating_mul(2)).min(tokio::sync::Semaphore::MAX_PERMITS)
    }

    pub(crate) fn group(&self, message: &Message) -> u64 {
        self.group.as_ref().map_or(0, |group| group(message))
    }
}

impl<S> Layer<S> for BatchLayer {
    type Service = Batcher<S>;

    fn layer(&self, inner: S) -> Batcher<S> {
        Batcher::new(inner, self)
    }
}

impl fmt::Debug for BatchLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchLayer")
            .field("size", &self.size)
            .field("wait", &self.wait)
            .field("ready", &self.ready)
            .field("max_bytes", &self.max_bytes)
            .field("groups", &self.groups)
            .field("grouped", &self.group.is_some())
            .field("capacity", &self.capacity)
            .finish()
    }
}
