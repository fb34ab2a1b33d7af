//! A trace context that cannot be read.

/// Why a trace context cannot be read. Its message is handled all the same, in a trace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The header is a number, a list or the like.
    #[error("the header `traceparent` is no text")]
    NotText,
    /// It is not as long as its version says.
    #[error("the header `traceparent` has the wrong length")]
    Length,
    /// Something is not a lower-case hexadecimal digit, or a dash is missing.
    #[error("the header `traceparent` is not made of lower-case hexadecimal digits and dashes")]
    Digits,
    /// The version that no version will have.
    #[error("the header `traceparent` has the version ff, which is none")]
    Version,
    /// The trace's id or the span's id is zero.
    #[error("the header `traceparent` has an id that is zero")]
    Zero,
}
