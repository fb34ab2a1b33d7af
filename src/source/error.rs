//! Why a source ended, or could not begin.

use std::{error::Error, fmt};

use tower_mq_delivery::BoxError;

/// Why a source ended, or could not begin: what was tried, on which broker and queue, and what stood in the way.
///
/// It never shows a password.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    what: Box<str>,
    source: Option<BoxError>,
}

/// What stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// A setting cannot be right.
    Configuration,
    /// Name, password or certificate were not accepted.
    Authentication,
    /// The broker does not allow it, or does not do it.
    Refused,
    /// The queue, topic or address is not there.
    NotFound,
    /// The broker could not be reached for as long as the source was told to try.
    Unreachable,
    /// The broker said something that the source does not understand.
    Protocol,
    /// The broker ended the subscription: the queue was deleted, or taken over.
    Cancelled,
    /// The broker was shut down (only the in-process broker).
    Closed,
}

impl SourceError {
    /// An error of this kind; `what` is a sentence that names broker and queue.
    pub fn new(kind: SourceErrorKind, what: impl Into<Box<str>>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// The error behind it.
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What stood in the way.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
