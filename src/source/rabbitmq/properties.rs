//! What RabbitMQ says about a message beside payload and key.

use std::{borrow::Cow, time::SystemTime};

use lapin::{BasicProperties, types::ShortString};
use tower_mq_delivery::{Properties as AnyProperties, Value};

use super::value::{seconds, value};

/// The properties of a message from RabbitMQ, for `message.native::<rabbitmq::Properties>()`. Headers are decoded
/// when asked for.
#[derive(Clone, Debug)]
pub struct Properties {
    pub(super) basic: BasicProperties,
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) delivery_tag: u64,
}

fn text(field: &Option<ShortString>) -> Option<&str> {
    field.as_ref().map(ShortString::as_str)
}

impl Properties {
    /// The exchange that it was published to; empty: the default exchange.
    pub fn exchange(&self) -> &str {
        self.exchange.as_str()
    }

    /// The routing key that it was published with.
    pub fn routing_key(&self) -> &str {
        self.routing_key.as_str()
    }

    /// Its number on the connection it was taken from, from 1.
    pub fn delivery_tag(&self) -> u64 {
        self.delivery_tag
    }

    /// Whether the broker keeps it on disk.
    pub fn is_persistent(&self) -> bool {
        *self.basic.delivery_mode() == Some(2)
    }

    /// Its priority.
    pub fn priority(&self) -> Option<u8> {
        *self.basic.priority()
    }

    /// How the payload is encoded, beside its media type.
    pub fn content_encoding(&self) -> Option<&str> {
        text(self.basic.content_encoding())
    }

    /// The property `type`.
    pub fn kind(&self) -> Option<&str> {
        text(self.basic.kind())
    }

    /// The property `app_id`.
    pub fn app_id(&self) -> Option<&str> {
        text(self.basic.app_id())
    }

    /// The user who published it, checked by the broker.
    pub fn user_id(&self) -> Option<&str> {
        text(self.basic.user_id())
    }

    /// How many milliseconds it lives in a queue.
    pub fn expiration(&self) -> Option<&str> {
        text(self.basic.expiration())
    }
}

impl AnyProperties for Properties {
    fn id(&self) -> Option<Cow<'_, str>> {
        text(self.basic.message_id()).map(Cow::Borrowed)
    }

    fn correlation_id(&self) -> Option<Cow<'_, str>> {
        text(self.basic.correlation_id()).map(Cow::Borrowed)
    }

    fn reply_to(&self) -> Option<Cow<'_, str>> {
        text(self.basic.reply_to()).map(Cow::Borrowed)
    }

    fn content_type(&self) -> Option<Cow<'_, str>> {
        text(self.basic.content_type()).map(Cow::Borrowed)
    }

    fn timestamp(&self) -> Option<SystemTime> {
        self.basic.timestamp().and_then(seconds)
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        Some(value(self.basic.headers().as_ref()?.inner().get(name)?))
    }

    fn headers(&self) -> Box<dyn Iterator<Item = (&str, Value<'_>)> + '_> {
        let headers = self.basic.headers().iter().flat_map(|table| table.inner());
        Box::new(headers.map(|(name, header)| (name.as_str(), value(header))))
    }
}
