//! What decides which deliveries are in order with each other.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tower_mq_delivery::Message;
use xxhash_rust::xxh3::xxh3_64;

use crate::layer::Mode;

/// A key by which deliveries are kept in order, already hashed: it borrows nothing from the message.
///
/// An empty key is a key: all deliveries that have it are in order with each other. [`NONE`](Self::NONE) is not, and
/// such deliveries are in order with nobody.
///
/// The hash is XXH3 (64 bits) with the seed 0, so every process and every version of this crate sends a key to the
/// same lane. The lane is the hash modulo the number of lanes:
///
/// ```
/// use tower_mq_partition::LaneKey;
///
/// let lanes = ["", "a", "customer-7", "order-1", "order-2", "ключ"].map(|key| LaneKey::of(key).lane(8));
/// assert_eq!(lanes, [2, 7, 0, 6, 4, 6].map(Some));
/// assert_eq!(LaneKey::of("").hash(), Some(0x2d06_8005_38d3_94c2));
/// assert_eq!(LaneKey::of("a").hash(), Some(0xe6c6_32b6_1e96_4e1f));
/// assert_eq!(LaneKey::NONE.lane(8), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneKey(Option<u64>);

impl LaneKey {
    /// No key: the delivery goes to any lane.
    pub const NONE: Self = Self(None);

    /// This key.
    #[inline]
    pub fn of(key: impl AsRef<[u8]>) -> Self {
        Self(Some(xxh3_64(key.as_ref())))
    }

    /// This key, if there is one.
    #[inline]
    pub fn maybe(key: Option<impl AsRef<[u8]>>) -> Self {
        key.map_or(Self::NONE, Self::of)
    }

    /// The hash of the key.
    pub const fn hash(self) -> Option<u64> {
        self.0
    }

    /// The lane, out of `lanes`, that [`by_key`](crate::PartitionLayer::by_key) gives to this key.
    #[inline]
    pub fn lane(self, lanes: usize) -> Option<usize> {
        let lane = self.0?.checked_rem(lanes as u64)?;
        Some(lane as usize)
    }
}

/// A user's function from messages to keys.
pub(crate) type KeyFn = Arc<dyn Fn(&Message) -> LaneKey + Send + Sync>;

/// Finds the queue that a message belongs in.
pub(crate) struct Route {
    mode: Mode,
    lanes: usize,
    key: Option<KeyFn>,
    /// Counts what has no key.
    keyless: AtomicUsize,
}

impl Route {
    pub(crate) fn new(mode: Mode, lanes: usize, key: Option<KeyFn>) -> Self {
        Self { mode, lanes, key, keyless: AtomicUsize::new(0) }
    }

    /// The number of its lane, or a hash: that of its key; without a key, one that nobody else has.
    #[inline(always)]
    pub(crate) fn of(&self, message: &Message) -> u64 {
        match self.mode {
            Mode::ByKey => {
                let lane = self.key(message).lane(self.lanes);
                lane.unwrap_or_else(|| self.keyless.fetch_add(1, Ordering::Relaxed) % self.lanes) as u64
            }
            Mode::PerKey => self.key(message).0.unwrap_or_else(|| self.unique()),
            Mode::Unordered => self.unique(),
        }
    }

    #[inline]
    fn key(&self, message: &Message) -> LaneKey {
        match &self.key {
            Some(key) => key(message),
            None => LaneKey::maybe(message.key()),
        }
    }

    /// A hash that nobody else has; or, once in many billions, one that makes two deliveries wait for each other.
    #[inline]
    fn unique(&self) -> u64 {
        // An odd factor: different counts give different hashes, spread over all bits.
        (self.keyless.fetch_add(1, Ordering::Relaxed) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}
