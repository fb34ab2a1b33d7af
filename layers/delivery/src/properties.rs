//! What a broker says about a message beside payload and key.

use std::{any::Any, borrow::Cow, fmt, sync::Arc, time::SystemTime};

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
///
/// Most messages have few of them, so an empty one is a null pointer.
#[derive(Clone, Debug, Default)]
pub struct Plain(Option<Arc<Given>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) id: Option<Cow<'static, str>>,
    pub(crate) correlation_id: Option<Cow<'static, str>>,
    pub(crate) reply_to: Option<Cow<'static, str>>,
    pub(crate) content_type: Option<Cow<'static, str>>,
    pub(crate) timestamp: Option<SystemTime>,
    pub(crate) destination: Option<Cow<'static, str>>,
    pub(crate) headers: Vec<(Cow<'static, str>, Value<'static>)>,
}

impl Plain {
    pub(crate) fn given(&mut self) -> &mut Given {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    fn lent(&self, text: impl Fn(&Given) -> &Option<Cow<'static, str>>) -> Option<Cow<'_, str>> {
        self.0.as_ref().and_then(|given| text(given).as_deref()).map(Cow::Borrowed)
    }
}

impl Properties for Plain {
    fn id(&self) -> Option<Cow<'_, str>> {
        self.lent(|given| &given.id)
    }

    fn correlation_id(&self) -> Option<Cow<'_, str>> {
        self.lent(|given| &given.correlation_id)
    }

    fn reply_to(&self) -> Option<Cow<'_, str>> {
        self.lent(|given| &given.reply_to)
    }

    fn content_type(&self) -> Option<Cow<'_, str>> {
        self.lent(|given| &given.content_type)
    }

    fn timestamp(&self) -> Option<SystemTime> {
        self.0.as_ref().and_then(|given| given.timestamp)
    }

    fn destination(&self) -> Option<Cow<'_, str>> {
        self.lent(|given| &given.destination)
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.0.as_ref()?.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    }

    fn headers(&self) -> Box<dyn Iterator<Item = (&str, Value<'_>)> + '_> {
        let given = self.0.iter();
        Box::new(given.flat_map(|given| &given.headers).map(|(n, v)| (&**n, v.clone())))
    }
}
