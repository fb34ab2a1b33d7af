//! Errors that many waiters share.

use std::{error::Error, fmt, sync::Arc};

/// A boxed error, as everywhere in Tower.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// One error, told to many: every member of a failed batch, every delivery queued in a lane that ended.
///
/// `Arc<BoxError>` is not an `Error`; this is, and it keeps the chain: [`source`](Error::source) is the shared
/// error itself, so a decision in it ([`Failure`](crate::Failure)) is still found.
#[derive(Clone, Debug)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

impl From<BoxError> for SharedError {
    fn from(error: BoxError) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// A handler answered a batch with one result for each member, and there are not as many: every member that it was given
/// is told this, in a [`BoxError`]. A mistake of the handler: nobody knows whose result is whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a batch of {members} members was answered with {results} results: return one for each member, or one for all"
)]
pub struct WrongLength {
    /// How many members the handler was given.
    pub members: usize,
    /// How many results it returned.
    pub results: usize,
}

/// What a caught panic carried.
pub type Panic = Box<dyn std::any::Any + Send>;

/// A panic of a service or handler, as an error.
#[derive(Clone, Debug)]
pub struct Panicked {
    message: Box<str>,
}

impl Panicked {
    /// Reads the message out of what [`std::panic::catch_unwind`] returned.
    pub fn new(panic: &Panic) -> Self {
        let message = panic
            .downcast_ref::<&'static str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Self { message: message.into() }
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.message)
    }
}

impl Error for Panicked {}
