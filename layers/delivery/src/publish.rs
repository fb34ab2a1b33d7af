//! Publishing is a service too.

use std::borrow::Cow;

use crate::Message;

/// What a publisher is asked to do: `Service<Publication, Response = Receipt>`, done when the broker has stored it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Publication {
    /// The queue or topic. `None`: the publisher's own ([`to`](Self::to) sets it).
    pub destination: Option<Cow<'static, str>>,
    /// Payload, key, headers and properties.
    pub message: Message,
    /// Headers that are added to those of the message, or replace them.
    pub headers: Vec<(Cow<'static, str>, crate::Value<'static>)>,
}

impl Publication {
    /// Publishes a message, or a copy of one.
    pub fn new(message: Message) -> Self {
        Self { destination: None, message, headers: Vec::new() }
    }

    /// The queue or topic.
    pub fn to(mut self, destination: impl Into<Cow<'static, str>>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Adds a header, or replaces one of the message's.
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<crate::Value<'static>>,
    ) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// The broker has stored a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The id that the broker gave it, where it gives one.
    pub id: Option<String>,
}

impl Receipt {
    /// A receipt without an id.
    pub const fn new() -> Self {
        Self { id: None }
    }

    /// A receipt with the broker's id.
    pub fn with_id(id: impl Into<String>) -> Self {
        Self { id: Some(id.into()) }
    }
}
