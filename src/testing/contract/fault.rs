//! What a source did wrong.

use std::borrow::Cow;

/// What a source did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source breaks the contract: {what} (while {case})")]
#[non_exhaustive]
pub struct SourceFault {
    /// What was going on.
    pub case: &'static str,
    /// What was wrong.
    pub what: Cow<'static, str>,
}
