//! What a run has done.

use std::{error::Error, fmt};

use tower_mq_delivery::{BoxError, Counts, Panicked};

use crate::source::SourceError;

/// What a run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many deliveries were taken, and what became of them.
    pub counts: Counts,
    /// Handlers that still ran when the drain time-out was over, and were dropped: the messages come again.
    pub abandoned: u64,
    /// Responses that were errors: with a settle layer in the stack, settlements that failed.
    pub errors: u64,
    /// Panics that reached the driver.
    pub panics: u64,
    /// Who ended the run.
    pub ended: Ended,
}

/// Who ended a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The source came to its end, or was closed through its handle.
    #[default]
    Source,
    /// The shutdown signal.
    Shutdown,
    /// The service failed.
    Service,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { taken, acked, released, retried, rejected, dropped, stale, failed, .. } = self.counts;
        write!(
            f,
            "taken {taken}: acked {acked}, retried {retried}, rejected {rejected}, released {released}, dropped \
             {dropped}, stale {stale}, failed {failed}; abandoned {}, errors {}, panics {}",
            self.abandoned, self.errors, self.panics
        )
    }
}

/// Why a run ended that nobody asked to end. What it had done until then is in [`report`](Self::report).
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The source ended by itself.
    Source {
        /// Why.
        error: SourceError,
        /// What was done until then.
        report: Report,
    },
    /// The service said that it will never be ready again.
    Service {
        /// Why.
        error: BoxError,
        /// What was done until then.
        report: Report,
    },
    /// The service panicked outside of a response, so its state cannot be trusted.
    Panicked {
        /// What it said.
        error: Panicked,
        /// What was done until then.
        report: Report,
    },
}

impl ServeError {
    /// What was done until then.
    pub fn report(&self) -> &Report {
        match self {
            Self::Source { report, .. } | Self::Service { report, .. } | Self::Panicked { report, .. } => {
                report
            }
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source { error, .. } => write!(f, "the source ended: {error}"),
            Self::Service { error, .. } => write!(f, "the service failed: {error}"),
            Self::Panicked { error, .. } => write!(f, "the service {error}"),
        }
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Source { error, .. } => error,
            Self::Service { error, .. } => &**error,
            Self::Panicked { error, .. } => error,
        })
    }
}
