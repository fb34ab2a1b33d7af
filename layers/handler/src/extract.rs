//! What a handler can ask of a message.

use std::{ops::Deref, str};

use bytes::Bytes;
use tower_mq_delivery::{Headers, Message};

use crate::Rejection;

/// An argument of a handler, taken out of the message.
///
/// ```
/// use tower_mq_delivery::Message;
/// use tower_mq_handler::{FromMessage, Rejection};
///
/// struct Tenant(String);
///
/// impl FromMessage for Tenant {
///     fn from_message(message: &Message) -> Result<Self, Rejection> {
///         let tenant = message.header("tenant").ok_or_else(|| Rejection::missing::<Self>("it has no header `tenant`"))?;
///         let tenant = tenant.as_str().ok_or_else(|| Rejection::invalid::<Self>("the header `tenant` is no text"))?;
///         Ok(Self(tenant.to_owned()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken out of a message",
    label = "not an extractor",
    note = "extractors are `Json<T>` (feature `json`, `T: DeserializeOwned`), `Bytes`, `String`, `Key`, `Headers`, `Attempt`, `Destination`, `Message`; in a batch handler `Batch<..>` of one of these",
    note = "capture state in the closure, or implement `FromMessage`"
)]
pub trait FromMessage: Sized {
    /// Takes it out, or says why the message will never have it.
    fn from_message(message: &Message) -> Result<Self, Rejection>;
}

impl FromMessage for Message {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(message.clone())
    }
}

impl FromMessage for Bytes {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(message.payload().clone())
    }
}

/// The payload as text; rejected if it is not UTF-8.
impl FromMessage for String {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        str::from_utf8(message.payload()).map(str::to_owned).map_err(Rejection::invalid::<Self>)
    }
}

impl FromMessage for Headers {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(message.headers())
    }
}

/// The key whose messages are in order. An empty key is a key; `None` is not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub Option<Bytes>);

impl FromMessage for Key {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(Self(message.key().cloned()))
    }
}

impl Deref for Key {
    type Target = Option<Bytes>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Which attempt this is, from 1; `None` where nobody counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt(pub Option<u32>);

impl FromMessage for Attempt {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(Self(message.attempt()))
    }
}

impl Deref for Attempt {
    type Target = Option<u32>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The queue or topic that the message was taken from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination(pub String);

impl FromMessage for Destination {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(Self(message.destination().into_owned()))
    }
}

impl Deref for Destination {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// `None` where what `T` is made of is absent. A message in which it is malformed is rejected.
impl<T: FromMessage> FromMessage for Option<T> {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        match T::from_message(message) {
            Ok(extracted) => Ok(Some(extracted)),
            Err(rejection) if rejection.is_missing() => Ok(None),
            Err(rejection) => Err(rejection),
        }
    }
}

/// For handlers that look at the rejection themselves. Passed on, it still rejects the message.
impl<T: FromMessage> FromMessage for Result<T, Rejection> {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(T::from_message(message))
    }
}
