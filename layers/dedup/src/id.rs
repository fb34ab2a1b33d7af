//! What tells one message from another.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// What tells one message from another, already hashed: 16 bytes that borrow nothing from the message.
///
/// The hash is XXH3 (128 bits) with the seed 0, so every process and every version of this crate makes the same of an
/// id. Of a billion ids that are remembered, the odds that a new one is taken for one of them are below 10⁻²⁹. Who makes
/// ids on purpose so that their hashes are equal gets no further than who sends the same id twice.
///
/// ```
/// use tower_mq_dedup::Id;
///
/// assert_eq!(Id::of("").to_string(), "99aa06d3014798d86001c324468d497f");
/// let id = Id::of("order-7");
/// assert_eq!(id.to_string(), "559a54927d0be7dff7ad37c0ce664fea");
/// assert_ne!(id.within("orders"), id.within("returns"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id([u64; 2]);

impl Id {
    /// This id.
    #[inline]
    pub fn of(id: impl AsRef<[u8]>) -> Self {
        Self::from_hash(xxh3_128(id.as_ref()))
    }

    /// The same id among those of `scope`: another one than among those of another scope.
    #[inline]
    #[must_use]
    pub fn within(self, scope: &str) -> Self {
        self.mixed(Self::scope(scope))
    }

    /// The hash of a scope. Its seed is another one, so that an id that is called like its scope is not its own opposite.
    #[inline]
    pub(crate) fn scope(scope: &str) -> Self {
        Self::from_hash(xxh3_128_with_seed(scope.as_bytes(), 1))
    }

    #[inline]
    pub(crate) const fn mixed(self, scope: Self) -> Self {
        Self([self.0[0] ^ scope.0[0], self.0[1] ^ scope.0[1]])
    }

    /// One half of it, which is enough to find it by.
    #[inline]
    pub(crate) const fn low(self) -> u64 {
        self.0[1]
    }

    #[inline]
    const fn from_hash(hash: u128) -> Self {
        Self([(hash >> 64) as u64, hash as u64])
    }

    /// For stores: the id as bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0[0]) << 64 | u128::from(self.0[1])).to_be_bytes()
    }
}

// It is a hash already, and one half of it is enough to find it by.
impl Hash for Id {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.low());
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}
