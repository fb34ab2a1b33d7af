//! How many bytes properties take on their way to the broker.
//!
//! They go in one frame. The broker ends a connection on which a frame is too large, and with it everything else that
//! is under way there.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};

/// The rest of a frame around its payload: kind, channel, length and end.
const AROUND: usize = 8;
/// Class, weight, size of the body, and which properties there are.
const BEFORE: usize = 14;

/// The size of the frame that these properties go in.
pub(super) fn frame(properties: &BasicProperties) -> usize {
    let texts = [
        properties.content_type(),
        properties.content_encoding(),
        properties.correlation_id(),
        properties.reply_to(),
        properties.expiration(),
        properties.message_id(),
        properties.kind(),
        properties.user_id(),
        properties.app_id(),
        properties.cluster_id(),
    ];
    let texts: usize = texts.into_iter().flatten().map(short).sum();
    let headers = properties.headers().as_ref().map_or(0, table);
    let octets =
        usize::from(properties.delivery_mode().is_some()) + usize::from(properties.priority().is_some());
    let timestamp = properties.timestamp().map_or(0, |_| 8);
    AROUND + BEFORE + texts + headers + octets + timestamp
}

fn short(text: &ShortString) -> usize {
    1 + text.as_str().len()
}

fn table(table: &FieldTable) -> usize {
    4 + table.inner().iter().map(|(name, field)| short(name) + value(field)).sum::<usize>()
}

/// With the octet that tells its type.
fn value(field: &AMQPValue) -> usize {
    1 + match field {
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => short(text),
        AMQPValue::LongString(text) => 4 + text.as_bytes().len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.as_slice().len(),
        AMQPValue::FieldArray(fields) => 4 + fields.as_slice().iter().map(value).sum::<usize>(),
        AMQPValue::FieldTable(fields) => table(fields),
    }
}
