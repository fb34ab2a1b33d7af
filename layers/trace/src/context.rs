//! Where a message belongs in the traces of those who sent it.

use std::fmt;

use tower_mq_delivery::{Message, Publication, Value};

use crate::{
    Malformed,
    convention::{TRACEPARENT, TRACESTATE},
    state,
};

/// Longer than any version of the header will be: what goes on is not read.
const LONGEST: usize = 512;
/// The length of version 00, and the least of every later one.
const LENGTH: usize = 55;

/// The trace context of a message, as the W3C writes it: headers `traceparent` and `tracestate`.
///
/// [`Display`](fmt::Display) writes the header `traceparent`. It is of version 00; of the flags it keeps the one that
/// all versions know, *sampled*.
///
/// A handler that publishes passes the context of its message on with [`inject`](Self::inject). With the feature
/// `opentelemetry` the [publisher's layer](crate::TraceLayer::publisher) does so by itself.
///
/// ```
/// use tower_mq_delivery::{Message, Publication};
/// use tower_mq_trace::TraceContext;
///
/// let order = Message::builder("two teas")
///     .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
///     .build();
/// let context = TraceContext::of(&order).expect("well formed");
/// assert!(context.is_sampled());
/// let bill = context.inject(Publication::new(Message::new("the bill")));
/// assert_eq!(bill.headers[0].0, "traceparent");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub(crate) trace_id: [u8; 16],
    pub(crate) parent_id: [u8; 8],
    sampled: bool,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// The context in the headers of a message. `None`: there is none, or it is malformed, which is logged (debug).
    pub fn of(message: &Message) -> Option<Self> {
        let header = message.header(TRACEPARENT)?;
        match Self::read(&header, message.header(TRACESTATE).as_ref()) {
            Ok(context) => Some(context),
            Err(error) => {
                tracing::debug!(destination = %message.destination(), %error, "a message begins a trace of its own");
                None
            }
        }
    }

    /// Reads the two headers, of whatever type they are. A `tracestate` that is malformed is left out; one of more than
    /// 512 characters loses its longest entries, then its last.
    ///
    /// # Errors
    /// If `traceparent` is malformed.
    pub fn read(traceparent: &Value<'_>, tracestate: Option<&Value<'_>>) -> Result<Self, Malformed> {
        let mut context = Self::parse(text(traceparent).ok_or(Malformed::NotText)?)?;
        context.state = tracestate.and_then(text).and_then(state::read);
        Ok(context)
    }

    /// Reads the header `traceparent`.
    fn parse(header: &[u8]) -> Result<Self, Malformed> {
        if header.len() > LONGEST {
            return Err(Malformed::Length);
        }
        let (version, rest) = header.split_at_checked(2).ok_or(Malformed::Length)?;
        let [version] = hex(version)?;
        // A later version may go on after another dash.
        match (version, rest.get(LENGTH - 2)) {
            (0xff, _) => return Err(Malformed::Version),
            _ if header.len() < LENGTH => return Err(Malformed::Length),
            (_, None) | (1.., Some(b'-')) => {}
            (0, Some(_)) => return Err(Malformed::Length),
            (1.., Some(_)) => return Err(Malformed::Digits),
        }
        let [b'-', rest @ ..] = rest else { return Err(Malformed::Digits) };
        let (trace_id, rest) = rest.split_at(32);
        let [b'-', rest @ ..] = rest else { return Err(Malformed::Digits) };
        let (parent_id, rest) = rest.split_at(16);
        let [b'-', rest @ ..] = rest else { return Err(Malformed::Digits) };
        let (trace_id, parent_id, [flags]) = (hex(trace_id)?, hex(parent_id)?, hex(&rest[..2])?);
        if trace_id == [0; 16] || parent_id == [0; 8] {
            return Err(Malformed::Zero);
        }
        Ok(Self { trace_id, parent_id, sampled: flags & 1 == 1, state: None })
    }

    #[cfg(feature = "opentelemetry")]
    pub(crate) fn new(trace_id: [u8; 16], parent_id: [u8; 8], sampled: bool, state: &str) -> Self {
        let state = (!state.is_empty()).then(|| state.into());
        Self { trace_id, parent_id, sampled, state }
    }

    /// The id of the trace.
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The id of the span that sent the message.
    pub const fn parent_id(&self) -> [u8; 8] {
        self.parent_id
    }

    /// The sender may have recorded its span.
    pub const fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// What tracing systems add for themselves.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Sets the two headers of a publication, in the place of those that its message has.
    pub fn inject(&self, publication: Publication) -> Publication {
        // A state of another trace must not stay behind.
        let foreign = self.state.is_none() && publication.message.header(TRACESTATE).is_some();
        let state = self.state.as_deref().map(str::to_owned).or_else(|| foreign.then(String::new));
        let publication = publication.header(TRACEPARENT, self.to_string());
        match state {
            Some(state) => publication.header(TRACESTATE, state),
            None => publication,
        }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, parent) = (Hex(&self.trace_id), Hex(&self.parent_id));
        write!(f, "00-{trace}-{parent}-{:02x}", u8::from(self.sampled))
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self}, {:?})", self.state)
    }
}

/// Some brokers hand text out as bytes.
fn text<'a>(value: &'a Value<'_>) -> Option<&'a [u8]> {
    match value {
        Value::Bytes(bytes) => Some(bytes),
        text => text.as_str().map(str::as_bytes),
    }
}

fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], Malformed> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

const fn digit(digit: u8) -> Result<u8, Malformed> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(Malformed::Digits),
    }
}

/// Writes bytes as lower-case hexadecimal digits.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
