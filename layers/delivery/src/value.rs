//! Header values in their native types.

use std::{borrow::Cow, time::SystemTime};

/// A header's value, in the type that the broker gave it.
///
/// The types of AMQP 0.9.1 and 1.0, Pulsar and RocketMQ are all here, with their widths, so that a copy of a
/// message carries what the original did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs)] // the names are the field's own
pub enum Value<'a> {
    Null,
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    /// `value / 10^scale` (AMQP 0.9.1).
    Decimal {
        scale: u8,
        value: u32,
    },
    Char(char),
    Text(Cow<'a, str>),
    /// Text whose characters nobody has checked, or that is not text at all.
    Bytes(Cow<'a, [u8]>),
    /// A name from a fixed vocabulary (AMQP 1.0).
    Symbol(Cow<'a, str>),
    Uuid([u8; 16]),
    Time(SystemTime),
    List(Vec<Value<'a>>),
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
}

impl Value<'_> {
    /// The value as text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(s) | Self::Symbol(s) => Some(s),
            Self::Bytes(b) => std::str::from_utf8(b).ok(),
            _ => None,
        }
    }

    /// The value as a whole number, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::I8(n) => Some(n.into()),
            Self::I16(n) => Some(n.into()),
            Self::I32(n) => Some(n.into()),
            Self::I64(n) => Some(n),
            Self::U8(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::U64(n) => n.try_into().ok(),
            _ => None,
        }
    }

    /// A value that borrows nothing.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(v) => Value::Bool(v),
            Self::I8(v) => Value::I8(v),
            Self::I16(v) => Value::I16(v),
            Self::I32(v) => Value::I32(v),
            Self::I64(v) => Value::I64(v),
            Self::U8(v) => Value::U8(v),
            Self::U16(v) => Value::U16(v),
            Self::U32(v) => Value::U32(v),
            Self::U64(v) => Value::U64(v),
            Self::F32(v) => Value::F32(v),
            Self::F64(v) => Value::F64(v),
            Self::Decimal { scale, value } => Value::Decimal { scale, value },
            Self::Char(v) => Value::Char(v),
            Self::Text(v) => Value::Text(v.into_owned().into()),
            Self::Bytes(v) => Value::Bytes(v.into_owned().into()),
            Self::Symbol(v) => Value::Symbol(v.into_owned().into()),
            Self::Uuid(v) => Value::Uuid(v),
            Self::Time(v) => Value::Time(v),
            Self::List(v) => Value::List(v.into_iter().map(Value::into_owned).collect()),
            Self::Map(v) => {
                Value::Map(v.into_iter().map(|(k, v)| (k.into_owned().into(), v.into_owned())).collect())
            }
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),*) => { $(
        impl From<$from> for Value<'_> {
            fn from(value: $from) -> Self {
                Self::$variant(value)
            }
        }
    )* };
}
from!(bool => Bool, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f32 => F32, f64 => F64, char => Char, SystemTime => Time);

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value.into())
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Self::Text(value.into())
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(value.into())
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value.into())
    }
}
