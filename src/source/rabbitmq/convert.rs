//! A delivery of the client becomes a message.

use std::{fmt::Display, sync::Arc};

use bytes::Bytes;
use lapin::{
    message::Delivery,
    types::{AMQPValue, FieldTable},
};
use tower_mq_delivery::{Generation, Message};

use super::{
    properties::Properties,
    settle::Taken,
    tried::{Fingerprint, Tried},
};

/// What came of a conversion.
pub(super) struct Converted {
    pub(super) message: Message,
    pub(super) taken: Taken,
    /// The header has a type that cannot be a key.
    pub(super) keyless: bool,
}

/// Converts a delivery.
pub(super) fn convert(
    delivery: Delivery,
    generation: &Arc<Generation>,
    key_header: &str,
    tried: &Tried,
) -> Converted {
    let headers = delivery.properties.headers().as_ref();
    let header = |name: &str| headers.map(FieldTable::inner)?.get(name);
    let (key, keyless) = match header(key_header) {
        None | Some(AMQPValue::Void) => (None, false),
        Some(value) => {
            let key = key(value);
            let keyless = key.is_none();
            (key, keyless)
        }
    };
    let payload = Bytes::from(delivery.data);
    let redelivered = delivery.redelivered;
    let mut fingerprint = None;
    let attempt = match header("x-delivery-count").and_then(count) {
        Some(before) => Some(before.saturating_add(1)),
        None => {
            let print = *fingerprint.insert(Fingerprint::of(
                delivery.properties.message_id().as_ref(),
                &payload,
                key.as_ref(),
            ));
            if redelivered { tried.count(print).map(|failed| failed.saturating_add(1)) } else { Some(1) }
        }
    };
    let properties = Properties {
        basic: delivery.properties,
        exchange: delivery.exchange,
        routing_key: delivery.routing_key,
        delivery_tag: delivery.delivery_tag,
    };
    let message = Message::native_builder(payload, generation.clone(), properties)
        .maybe_key(key)
        .maybe_attempt(attempt)
        .redelivered(redelivered)
        .build();
    // A message of unknown count that came again has failed once, as the error policies take it.
    let attempt = attempt.unwrap_or(2);
    Converted {
        message,
        taken: Taken { tag: delivery.delivery_tag, fingerprint, attempt, redelivered },
        keyless,
    }
}

/// The key in a header: text and bytes as they are, numbers as their decimal text. Tables and arrays are no key.
fn key(value: &AMQPValue) -> Option<Bytes> {
    fn text(value: &impl Display) -> Bytes {
        value.to_string().into()
    }
    Some(match value {
        AMQPValue::LongString(v) => Bytes::copy_from_slice(v.as_bytes()),
        AMQPValue::ShortString(v) => Bytes::copy_from_slice(v.as_str().as_bytes()),
        AMQPValue::ByteArray(v) => Bytes::copy_from_slice(v.as_slice()),
        AMQPValue::ShortShortInt(v) => text(v),
        AMQPValue::ShortShortUInt(v) => text(v),
        AMQPValue::ShortInt(v) => text(v),
        AMQPValue::ShortUInt(v) => text(v),
        AMQPValue::LongInt(v) => text(v),
        AMQPValue::LongUInt(v) => text(v),
        AMQPValue::LongLongInt(v) => text(v),
        AMQPValue::Timestamp(v) => text(v),
        AMQPValue::Float(v) => text(v),
        AMQPValue::Double(v) => text(v),
        AMQPValue::Boolean(v) => text(v),
        AMQPValue::DecimalValue(v) => {
            // `value / 10^scale`, with all its digits.
            let (digits, scale) = (v.value.to_string(), usize::from(v.scale));
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, part) = digits.split_at(digits.len() - scale);
            if part.is_empty() { whole.to_owned().into() } else { format!("{whole}.{part}").into() }
        }
        AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) | AMQPValue::Void => return None,
    })
}

/// A count in any whole type.
fn count(value: &AMQPValue) -> Option<u32> {
    let count = super::value::value(value).as_i64()?;
    u32::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use lapin::{BasicProperties, types::DecimalValue};
    use tower_mq_delivery::{Capabilities, Origin, Value};

    use super::*;

    fn converted(headers: Option<FieldTable>, redelivered: bool, tried: &Tried) -> Converted {
        let mut delivery =
            Delivery::mock(7, "events".into(), "order.new".into(), redelivered, b"{}".to_vec());
        if let Some(headers) = headers {
            delivery.properties = BasicProperties::default().with_headers(headers);
        }
        let origin = Origin::new("orders", "rabbitmq", 16, Capabilities::unknown());
        convert(delivery, &Generation::first(Arc::new(origin)), "amqp-partition-key", tried)
    }

    fn with(name: &str, value: AMQPValue) -> Option<FieldTable> {
        let mut table = FieldTable::default();
        table.insert(name.into(), value);
        Some(table)
    }

    fn key_of(value: AMQPValue) -> Option<Bytes> {
        converted(with("amqp-partition-key", value), false, &Tried::new(1)).message.key().cloned()
    }

    #[test]
    fn a_key_is_text_bytes_or_a_number_in_decimal() {
        let cases: [(AMQPValue, &[u8]); 8] = [
            (AMQPValue::LongString("customer-7".into()), b"customer-7"),
            (AMQPValue::ShortString("customer-7".into()), b"customer-7"),
            (AMQPValue::ByteArray(vec![0xff, 0x00].into()), b"\xff\x00"),
            (AMQPValue::LongLongInt(-42), b"-42"),
            (AMQPValue::ShortShortUInt(200), b"200"),
            (AMQPValue::Boolean(true), b"true"),
            (AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 5 }), b"0.05"),
            (AMQPValue::LongString("".into()), b""),
        ];
        for (value, expected) in cases {
            assert_eq!(key_of(value).as_deref(), Some(expected));
        }
    }

    #[test]
    fn an_absent_header_is_no_key_and_a_table_cannot_be_one() {
        let tried = Tried::new(1);
        assert_eq!(converted(None, false, &tried).message.key(), None);
        assert_eq!(key_of(AMQPValue::Void), None);
        let table = converted(
            with("amqp-partition-key", AMQPValue::FieldTable(FieldTable::default())),
            false,
            &tried,
        );
        assert!(table.message.key().is_none() && table.keyless);
    }

    #[test]
    fn the_count_of_the_broker_goes_before_that_of_the_source() {
        let tried = Tried::new(4);
        let first = converted(None, false, &tried);
        assert_eq!(first.message.attempt(), Some(1));
        assert_eq!(converted(None, true, &tried).message.attempt(), None);
        tried.failed(first.taken.fingerprint.expect("the broker does not count"), 1);
        assert_eq!(converted(None, true, &tried).message.attempt(), Some(2));
        let counted = converted(with("x-delivery-count", AMQPValue::LongLongInt(6)), true, &tried);
        assert_eq!(counted.message.attempt(), Some(7));
    }

    #[test]
    fn what_only_this_broker_knows_is_there() {
        let converted = converted(with("tenant", AMQPValue::LongInt(3)), true, &Tried::new(1));
        let native = converted.message.native::<Properties>().expect("it is from RabbitMQ");
        assert_eq!(
            (native.exchange(), native.routing_key(), native.delivery_tag()),
            ("events", "order.new", 7)
        );
        assert_eq!(converted.message.header("tenant"), Some(Value::I32(3)));
        assert_eq!(converted.message.destination(), "orders");
        assert!(converted.message.redelivered());
    }
}
