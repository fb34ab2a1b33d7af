//! A publication becomes what the broker stores.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use tower_mq_delivery::{ATTEMPT_HEADER, Message, Publication};

use super::{
    error::PublishError,
    properties::Properties,
    value::{TooLong, native, short, whole_seconds},
};

/// Where it goes, and what goes with the payload.
pub(super) struct Routed {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
}

/// Headers that would change the fate of a copy.
const NOT_COPIED: [&str; 4] = ["CC", "BCC", "x-delivery-count", ATTEMPT_HEADER];
const PERSISTENT: u8 = 2;

pub(super) fn compose(
    exchange: &str,
    routing_key: &str,
    key_header: &str,
    publication: &Publication,
) -> Result<Routed, PublishError> {
    let compose = || {
        let (exchange, routing_key) = (short(exchange)?, short(routing_key)?);
        Ok(Routed { exchange, routing_key, properties: properties(key_header, publication)? })
    };
    compose().map_err(|error: TooLong| PublishError::Invalid(error.to_string().into()))
}

fn properties(key_header: &str, publication: &Publication) -> Result<BasicProperties, TooLong> {
    let message = &publication.message;
    let mut headers = FieldTable::default();
    let properties = match message.native::<Properties>() {
        Some(original) => copy(original, &mut headers),
        None => describe(message, &mut headers)?,
    };
    for (name, value) in &publication.headers {
        headers.insert(short(name)?, native(value)?);
    }
    if let Some(key) = message.key()
        && !headers.contains_key(key_header)
    {
        let key = match std::str::from_utf8(key) {
            Ok(text) => AMQPValue::LongString(text.into()),
            Err(_) => AMQPValue::ByteArray(key.as_ref().into()),
        };
        headers.insert(short(key_header)?, key);
    }
    Ok(if headers.inner().is_empty() { properties } else { properties.with_headers(headers) })
}

/// The properties of a message from RabbitMQ, and into `headers` its headers.
fn copy(original: &Properties, headers: &mut FieldTable) -> BasicProperties {
    for (name, value) in original.basic.headers().iter().flat_map(FieldTable::inner) {
        if !NOT_COPIED.contains(&name.as_str()) {
            headers.insert(name.clone(), value.clone());
        }
    }
    let from = &original.basic;
    let mut to = BasicProperties::default().with_delivery_mode(PERSISTENT);
    macro_rules! keep {
        ($($field:ident: $with:ident),*) => { $(
            if let Some(value) = from.$field().clone() {
                to = to.$with(value);
            }
        )* };
    }
    keep!(content_type: with_content_type, content_encoding: with_content_encoding, priority: with_priority,
        correlation_id: with_correlation_id, reply_to: with_reply_to, message_id: with_message_id,
        timestamp: with_timestamp, kind: with_type, app_id: with_app_id);
    to
}

/// The properties of any other message, and into `headers` its headers.
fn describe(message: &Message, headers: &mut FieldTable) -> Result<BasicProperties, TooLong> {
    for (name, value) in message.headers().iter().filter(|(name, _)| *name != ATTEMPT_HEADER) {
        headers.insert(short(name)?, native(&value)?);
    }
    let mut properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    if let Some(id) = message.id() {
        properties = properties.with_message_id(short(&id)?);
    }
    if let Some(id) = message.correlation_id() {
        properties = properties.with_correlation_id(short(&id)?);
    }
    if let Some(destination) = message.reply_to() {
        properties = properties.with_reply_to(short(&destination)?);
    }
    if let Some(media_type) = message.content_type() {
        properties = properties.with_content_type(short(&media_type)?);
    }
    if let Some(at) = message.timestamp() {
        properties = properties.with_timestamp(whole_seconds(at));
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, UNIX_EPOCH},
    };

    use tower_mq_delivery::{Capabilities, Generation, Origin};

    use super::*;

    const KEY: &str = "amqp-partition-key";

    fn composed(publication: &Publication) -> BasicProperties {
        compose("", "orders", KEY, publication).expect("nothing is too long").properties
    }

    fn header(properties: &BasicProperties, name: &str) -> Option<AMQPValue> {
        properties.headers().as_ref()?.inner().get(name).cloned()
    }

    #[test]
    fn key_headers_and_properties_go_along_and_the_publication_has_the_last_word() {
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let message = Message::builder("{}").key("k").id("7").timestamp(at).header("tenant", "blue").build();
        let properties = composed(&Publication::new(message).header("tenant", 3i16));
        assert_eq!(header(&properties, KEY), Some(AMQPValue::LongString("k".into())));
        assert_eq!(header(&properties, "tenant"), Some(AMQPValue::ShortInt(3)));
        assert_eq!(properties.message_id().as_ref().map(ShortString::as_str), Some("7"));
        assert_eq!(
            (*properties.timestamp(), *properties.delivery_mode()),
            (Some(1_700_000_000), Some(PERSISTENT))
        );
    }

    #[test]
    fn a_message_without_headers_gets_none() {
        assert!(composed(&Publication::new(Message::new("{}"))).headers().is_none());
    }

    #[test]
    fn a_copy_keeps_what_it_was_and_drops_what_would_change_its_fate() {
        let mut headers = FieldTable::default();
        headers.insert(KEY.into(), AMQPValue::LongInt(7));
        headers
            .insert("CC".into(), AMQPValue::FieldArray(vec![AMQPValue::LongString("other".into())].into()));
        headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(3));
        headers.insert(ATTEMPT_HEADER.into(), AMQPValue::LongInt(2));
        headers.insert("raw".into(), AMQPValue::LongString(vec![0xff].into()));
        let basic = BasicProperties::default()
            .with_headers(headers)
            .with_type("order".into())
            .with_expiration("10".into())
            .with_user_id("somebody".into());
        let origin = Arc::new(Origin::new("orders", "rabbitmq", 1, Capabilities::unknown()));
        let native = Properties { basic, exchange: "".into(), routing_key: "orders".into(), delivery_tag: 1 };
        let message =
            Message::native_builder("{}".into(), Generation::first(origin), native).key("7").build();
        let properties = composed(&Publication::new(message));
        assert_eq!(header(&properties, KEY), Some(AMQPValue::LongInt(7)));
        assert_eq!(header(&properties, "raw"), Some(AMQPValue::LongString(vec![0xff].into())));
        assert!(header(&properties, "CC").is_none() && header(&properties, "x-delivery-count").is_none());
        assert!(header(&properties, ATTEMPT_HEADER).is_none());
        assert!(properties.expiration().is_none() && properties.user_id().is_none());
        assert_eq!(properties.kind().as_ref().map(ShortString::as_str), Some("order"));
    }

    #[test]
    fn the_header_of_a_delayed_copy_is_set_by_its_publication_alone() {
        let message = Message::builder("{}").header(ATTEMPT_HEADER, 1).build();
        assert!(composed(&Publication::new(message.clone())).headers().is_none());
        let put_off = composed(&Publication::new(message).header(ATTEMPT_HEADER, 2));
        assert_eq!(header(&put_off, ATTEMPT_HEADER), Some(AMQPValue::LongInt(2)));
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let error = compose("", &"q".repeat(256), KEY, &Publication::new(Message::new(""))).map(|_| ());
        assert!(matches!(error, Err(PublishError::Invalid(what)) if what.contains("256 bytes")));
    }
}
