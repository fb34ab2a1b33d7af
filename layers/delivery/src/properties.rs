//! What a broker says about a message beside payload and key.

use std::{any::Any, borrow::Cow, fmt, time::SystemTime};

use crate::Value;

/// The properties and headers of a message as its broker keeps them.
///
/// A source implements this for its own type, which rides in the message's one allocation and is decoded only when
/// somebody asks. [`Message::native`](crate::Message::native) gives the type itself back, for what only this broker
/// knows.
pub trait Properties: Any + fmt::Debug + Send + Sync {
    /// The message's id, as its producer or broker gave it.
    fn id(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The id of the message that this one answers.
    fn correlation_id(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Where an answer is expected.
    fn reply_to(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The payload's media type.
    fn content_type(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// When the message was made.
    fn timestamp(&self) -> Option<SystemTime> {
        None
    }

    /// The queue or topic that it was taken from, where one source serves several; else `None`.
    fn destination(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// One header. Names are compared as the broker compares them: to the letter, unless it says otherwise.
    fn header(&self, name: &str) -> Option<Value<'_>>;

    /// All headers, in the broker's order.
    fn headers(&self) -> Box<dyn Iterator<Item = (&str, Value<'_>)> + '_>;
}

/// Properties for messages that no broker made: those of tests, of the in-process broker, of publications.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    pub(crate) id: Option<Cow<'static, str>>,
    pub(crate) correlation_id: Option<Cow<'static, str>>,
    pub(crate) reply_to: Option<Cow<'static, str>>,
    pub(crate) content_type: Option<Cow<'static, str>>,
    pub(crate) timestamp: Option<SystemTime>,
    pub(crate) destination: Option<Cow<'static, str>>,
    pub(crate) headers: Vec<(Cow<'static, str>, Value<'static>)>,
}

fn lent<'a>(text: &'a Option<Cow<'static, str>>) -> Option<Cow<'a, str>> {
    text.as_deref().map(Cow::Borrowed)
}

impl Properties for Plain {
    fn id(&self) -> Option<Cow<'_, str>> {
        lent(&self.id)
    }

    fn correlation_id(&self) -> Option<Cow<'_, str>> {
        lent(&self.correlation_id)
    }

    fn reply_to(&self) -> Option<Cow<'_, str>> {
        lent(&self.reply_to)
    }

    fn content_type(&self) -> Option<Cow<'_, str>> {
        lent(&self.content_type)
    }

    fn timestamp(&self) -> Option<SystemTime> {
        self.timestamp
    }

    fn destination(&self) -> Option<Cow<'_, str>> {
        lent(&self.destination)
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    }

    fn headers(&self) -> Box<dyn Iterator<Item = (&str, Value<'_>)> + '_> {
        Box::new(self.headers.iter().map(|(n, v)| (&**n, v.clone())))
    }
}
