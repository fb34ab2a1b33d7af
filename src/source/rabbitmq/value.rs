//! Header values, to and from AMQP 0.9.1.

use std::{
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable, ShortString};
use tower_mq_delivery::Value;

/// Reads a header.
pub(super) fn value(native: &AMQPValue) -> Value<'_> {
    match native {
        AMQPValue::Boolean(v) => Value::Bool(*v),
        AMQPValue::ShortShortInt(v) => Value::I8(*v),
        AMQPValue::ShortShortUInt(v) => Value::U8(*v),
        AMQPValue::ShortInt(v) => Value::I16(*v),
        AMQPValue::ShortUInt(v) => Value::U16(*v),
        AMQPValue::LongInt(v) => Value::I32(*v),
        AMQPValue::LongUInt(v) => Value::U32(*v),
        AMQPValue::LongLongInt(v) => Value::I64(*v),
        AMQPValue::Float(v) => Value::F32(*v),
        AMQPValue::Double(v) => Value::F64(*v),
        AMQPValue::DecimalValue(DecimalValue { scale, value }) => {
            Value::Decimal { scale: *scale, value: *value }
        }
        AMQPValue::ShortString(v) => Value::Text(v.as_str().into()),
        AMQPValue::LongString(v) => match std::str::from_utf8(v.as_bytes()) {
            Ok(text) => Value::Text(text.into()),
            Err(_) => Value::Bytes(v.as_bytes().into()),
        },
        AMQPValue::FieldArray(v) => Value::List(v.as_slice().iter().map(value).collect()),
        AMQPValue::Timestamp(v) => seconds(*v).map_or(Value::U64(*v), Value::Time),
        AMQPValue::FieldTable(v) => {
            Value::Map(v.inner().iter().map(|(name, v)| (name.as_str().into(), value(v))).collect())
        }
        AMQPValue::ByteArray(v) => Value::Bytes(v.as_slice().into()),
        AMQPValue::Void => Value::Null,
    }
}

/// AMQP 0.9.1 counts time in seconds.
pub(super) fn seconds(since: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(since))
}

/// A header's name, or a routing key, is longer than the 255 bytes that AMQP has room for.
#[derive(Debug, thiserror::Error)]
#[error("`{start}…` has {length} bytes, and AMQP has room for 255")]
pub(super) struct TooLong {
    start: String,
    length: usize,
}

/// A short text of AMQP.
pub(super) fn short(text: &str) -> Result<ShortString, TooLong> {
    ShortString::try_new(text)
        .map_err(|_| TooLong { start: text.chars().take(32).collect(), length: text.len() })
}

/// Writes a header. What AMQP 0.9.1 has no type for becomes text: characters, symbols, UUIDs, and numbers of 64 bits
/// without a sign that are too large for one with a sign.
pub(super) fn native(value: &Value<'_>) -> Result<AMQPValue, TooLong> {
    Ok(match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(v) => AMQPValue::Boolean(*v),
        Value::I8(v) => AMQPValue::ShortShortInt(*v),
        Value::I16(v) => AMQPValue::ShortInt(*v),
        Value::I32(v) => AMQPValue::LongInt(*v),
        Value::I64(v) => AMQPValue::LongLongInt(*v),
        Value::U8(v) => AMQPValue::ShortShortUInt(*v),
        Value::U16(v) => AMQPValue::ShortUInt(*v),
        Value::U32(v) => AMQPValue::LongUInt(*v),
        Value::U64(v) => i64::try_from(*v).map_or_else(|_| text(&v.to_string()), AMQPValue::LongLongInt),
        Value::F32(v) => AMQPValue::Float(*v),
        Value::F64(v) => AMQPValue::Double(*v),
        Value::Decimal { scale, value } => {
            AMQPValue::DecimalValue(DecimalValue { scale: *scale, value: *value })
        }
        Value::Char(v) => text(v.encode_utf8(&mut [0; 4])),
        Value::Text(v) | Value::Symbol(v) => text(v),
        Value::Bytes(v) => AMQPValue::ByteArray(v.as_ref().into()),
        Value::Uuid(v) => text(&uuid(v)),
        Value::Time(v) => AMQPValue::Timestamp(whole_seconds(*v)),
        Value::List(v) => {
            AMQPValue::FieldArray(FieldArray::from(v.iter().map(native).collect::<Result<Vec<_>, _>>()?))
        }
        Value::Map(v) => {
            let mut table = FieldTable::default();
            for (name, value) in v {
                table.insert(short(name)?, native(value)?);
            }
            AMQPValue::FieldTable(table)
        }
        other => text(&format!("{other:?}")),
    })
}

/// AMQP's time begins in 1970.
pub(super) fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_its_type() {
        let table: FieldTable = [("a".into(), AMQPValue::ShortInt(-7))].into_iter().fold(
            FieldTable::default(),
            |mut table, (name, value): (ShortString, _)| {
                table.insert(name, value);
                table
            },
        );
        let natives = [
            AMQPValue::Void,
            AMQPValue::Boolean(true),
            AMQPValue::ShortShortInt(-1),
            AMQPValue::ShortShortUInt(255),
            AMQPValue::ShortInt(-2),
            AMQPValue::ShortUInt(65535),
            AMQPValue::LongInt(-3),
            AMQPValue::LongUInt(u32::MAX),
            AMQPValue::LongLongInt(i64::MIN),
            AMQPValue::Float(0.5),
            AMQPValue::Double(0.25),
            AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 1234 }),
            AMQPValue::LongString("text".into()),
            AMQPValue::ByteArray(vec![0xff, 0].into()),
            AMQPValue::Timestamp(1_700_000_000),
            AMQPValue::FieldArray(vec![AMQPValue::Boolean(false), AMQPValue::Void].into()),
            AMQPValue::FieldTable(table),
        ];
        for before in natives {
            assert_eq!(native(&value(&before)).expect("nothing is too long"), before);
        }
    }

    #[test]
    fn what_amqp_has_no_type_for_becomes_text() {
        let uuid = Value::Uuid([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let cases = [
            (Value::U64(u64::MAX), "18446744073709551615"),
            (Value::Char('ä'), "ä"),
            (Value::Symbol("amqp:accepted".into()), "amqp:accepted"),
            (uuid, "12345678-9abc-def0-0102-030405060708"),
        ];
        for (value, expected) in cases {
            assert_eq!(native(&value).expect("nothing is too long"), text(expected));
        }
        assert_eq!(native(&Value::U64(7)).expect("it is short"), AMQPValue::LongLongInt(7));
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_not_cut() {
        let value = Value::Map(vec![("n".repeat(256).into(), Value::Null)]);
        assert!(native(&value).expect_err("it is too long").to_string().contains("256 bytes"));
    }
}
