//! Why an argument could not be taken out of a message.

use std::any::type_name;

use tower_mq_delivery::{BoxError, Failure, Outcome};

/// An extractor could not be taken out of a message.
///
/// It carries its decision, a reject: the message will not get better. That holds too when a handler asks for
/// `Result<T, Rejection>` and passes the error on. The error that was found is in the chain of
/// [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[error("`{extractor}` cannot be taken out of the message: {failure}")]
#[non_exhaustive]
pub struct Rejection {
    extractor: Box<str>,
    missing: bool,
    #[source]
    failure: Failure,
}

impl Rejection {
    /// The message has nothing of what the extractor `E` is made of: `missing::<Tenant>("it has no header `tenant`")`.
    ///
    /// An argument of type `Option<E>` is `None` then.
    pub fn missing<E>(what: impl Into<BoxError>) -> Self {
        Self::new::<E>(true, what.into())
    }

    /// The message has what the extractor `E` is made of, and it is wrong.
    pub fn invalid<E>(error: impl Into<BoxError>) -> Self {
        Self::new::<E>(false, error.into())
    }

    fn new<E>(missing: bool, error: BoxError) -> Self {
        let extractor = without_paths(type_name::<E>()).into_boxed_str();
        let reason = format!("`{extractor}` cannot be taken out of the message: {error}");
        Self { extractor, missing, failure: Failure::with(Outcome::reject(reason), error) }
    }

    /// The extractor's type, without paths: `Json<Order>`.
    pub fn extractor(&self) -> &str {
        &self.extractor
    }

    /// The message has nothing of what the extractor is made of. Otherwise it is malformed.
    pub fn is_missing(&self) -> bool {
        self.missing
    }
}

/// `a::B<c::d::E>` as `B<E>`.
fn without_paths(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    for part in name.split_inclusive("::") {
        match part.strip_suffix("::") {
            // Of a path's segment, only what stands before it is kept: the `B<` of `B<c::`.
            Some(part) => short.push_str(part.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_')),
            None => short.push_str(part),
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::without_paths;

    #[test]
    fn a_type_is_named_as_its_author_wrote_it() {
        assert_eq!(without_paths("alloc::string::String"), "String");
        assert_eq!(without_paths("a::Json<b_1::c::Map<u8, d::E>>"), "Json<Map<u8, E>>");
        assert_eq!(without_paths("a::Json<[(u8, b::C)]>"), "Json<[(u8, C)]>");
    }
}
