//! Reading the headers of the W3C, whatever is in them.

use proptest::prelude::*;
use tower_mq_delivery::{Message, Publication, Value};
use tower_mq_trace::{Malformed, TraceContext};

const WELL_FORMED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn read(header: &str) -> Result<String, Malformed> {
    TraceContext::read(&header.into(), None).map(|context| context.to_string())
}

#[test]
fn a_well_formed_header_is_read_and_written_as_it_was() {
    for flags in ["00", "01"] {
        let header = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        assert_eq!(read(&header).as_deref(), Ok(&*header));
    }
    let context = TraceContext::read(&WELL_FORMED.into(), None).expect("well formed");
    assert_eq!(context.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
    assert_eq!(context.parent_id(), 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert!(context.is_sampled());
}

#[test]
fn flags_that_only_others_know_are_not_passed_on() {
    let flags = |flags: &str| format!("{}{flags}", &WELL_FORMED[..53]);
    for (given, written) in [("02", "00"), ("03", "01"), ("fe", "00"), ("ff", "01"), ("09", "01")] {
        assert_eq!(read(&flags(given)), Ok(flags(written)));
    }
}

#[test]
fn a_malformed_header_is_refused_for_what_is_wrong() {
    let swapped = |at: usize, with: &str| {
        let mut header = WELL_FORMED.to_owned();
        header.replace_range(at..at + with.len(), with);
        header
    };
    let malformed = [
        (String::new(), Malformed::Length),
        ("0".into(), Malformed::Length),
        ("00".into(), Malformed::Length),
        (WELL_FORMED[..54].into(), Malformed::Length),
        (format!("{WELL_FORMED}-"), Malformed::Length),
        (format!("{WELL_FORMED}-01"), Malformed::Length),
        (format!("{WELL_FORMED} "), Malformed::Length),
        (format!(" {WELL_FORMED}"), Malformed::Digits),
        (WELL_FORMED.to_uppercase(), Malformed::Digits),
        (swapped(0, "ff"), Malformed::Version),
        (swapped(0, "FF"), Malformed::Digits),
        (swapped(0, "0x"), Malformed::Digits),
        (swapped(2, "_"), Malformed::Digits),
        (swapped(35, "0"), Malformed::Digits),
        (swapped(52, "0"), Malformed::Digits),
        (swapped(3, "g"), Malformed::Digits),
        (swapped(3, "."), Malformed::Digits),
        (swapped(36, "A"), Malformed::Digits),
        (swapped(53, "-1"), Malformed::Digits),
        (swapped(3, &"0".repeat(32)), Malformed::Zero),
        (swapped(36, &"0".repeat(16)), Malformed::Zero),
        // As many bytes, and fewer characters.
        (swapped(3, "é"), Malformed::Digits),
    ];
    for (header, why) in malformed {
        assert_eq!(read(&header), Err(why), "{header:?}");
    }
}

#[test]
fn of_a_later_version_is_read_what_this_one_knows() {
    let later = format!("cc{}", &WELL_FORMED[2..]);
    assert_eq!(read(&later).as_deref(), Ok(WELL_FORMED));
    assert_eq!(read(&format!("{later}-")).as_deref(), Ok(WELL_FORMED));
    assert_eq!(read(&format!("{later}-what the future will be like")).as_deref(), Ok(WELL_FORMED));
    assert_eq!(read(&format!("{later}.what")), Err(Malformed::Digits));
    assert_eq!(read(&format!("{later}0")), Err(Malformed::Digits));
    assert_eq!(read(&later[..54]), Err(Malformed::Length));
    assert_eq!(read(&format!("{later}-{}", "x".repeat(512))), Err(Malformed::Length));
}

#[test]
fn text_is_text_in_whichever_type_a_broker_keeps_it() {
    let text: [Value<'_>; 4] = [
        WELL_FORMED.into(),
        WELL_FORMED.as_bytes().into(),
        Value::Symbol(WELL_FORMED.into()),
        WELL_FORMED.to_owned().into_bytes().into(),
    ];
    for value in text {
        let context = TraceContext::read(&value, Some(&Value::from(&b"a=1"[..]))).expect("well formed");
        assert_eq!((&*context.to_string(), context.tracestate()), (WELL_FORMED, Some("a=1")), "{value:?}");
    }
    for value in
        [Value::Null, true.into(), 7_u64.into(), Value::Uuid([1; 16]), Value::List(vec![WELL_FORMED.into()])]
    {
        assert_eq!(TraceContext::read(&value, None), Err(Malformed::NotText));
        let context = TraceContext::read(&WELL_FORMED.into(), Some(&value)).expect("well formed");
        assert_eq!(context.tracestate(), None, "a bad state costs only the state");
    }
}

#[test]
fn a_context_goes_along_with_what_follows_from_its_message() {
    let order =
        Message::builder("").header("traceparent", WELL_FORMED).header("tracestate", " a=1 , b=2").build();
    let context = TraceContext::of(&order).expect("well formed");
    let bill = context.inject(Publication::new(Message::new("")));
    let expected = [("traceparent", WELL_FORMED), ("tracestate", "a=1,b=2")];
    let expected = expected.map(|(name, value)| (name.into(), value.into()));
    assert_eq!(bill.headers, expected);

    let stateless = TraceContext::read(&WELL_FORMED.into(), None).expect("well formed");
    let forwarded = stateless.inject(Publication::new(order));
    let expected =
        [("traceparent", WELL_FORMED), ("tracestate", "")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(forwarded.headers, expected, "the state of another context does not stay behind");
    assert_eq!(TraceContext::of(&Message::new("")), None);
    assert_eq!(TraceContext::of(&Message::builder("").header("traceparent", 7).build()), None);
}

fn values() -> impl Strategy<Value = Value<'static>> {
    let near = "(00|01|cc|ff|0)?-?[0-9a-fA-F-]{0,60}";
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<char>().prop_map(Value::from),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        any::<String>().prop_map(Value::from),
        near.prop_map(Value::from),
        near.prop_map(|text| Value::Symbol(text.into())),
        proptest::collection::vec(any::<u8>(), 0..600).prop_map(Value::from),
        "([a-z]{1,3}(@[a-z]{1,3})?=[ -~]{0,200},?){0,40}".prop_map(Value::from),
    ]
}

proptest! {
    /// And what is read is well formed when it is written.
    #[test]
    fn nothing_in_the_headers_makes_it_panic(parent in values(), state in values()) {
        let message = Message::builder("").header("traceparent", parent).header("tracestate", state.clone()).build();
        let _ = TraceContext::of(&message);
        let context = TraceContext::read(&WELL_FORMED.into(), Some(&state)).expect("well formed");
        if let Some(kept) = context.tracestate() {
            prop_assert!(kept.len() <= 512);
            let again = TraceContext::read(&WELL_FORMED.into(), Some(&kept.into())).expect("well formed");
            prop_assert_eq!(again.tracestate(), Some(kept));
        }
    }

    #[test]
    fn every_context_is_read_as_it_was_written(trace in 1_u128.., parent in 1_u64.., sampled: bool) {
        let header = format!("00-{trace:032x}-{parent:016x}-{:02x}", u8::from(sampled));
        prop_assert_eq!(read(&header), Ok(header));
    }

    #[test]
    fn one_wrong_byte_is_enough(at in 0_usize..55, byte: u8) {
        let mut header = WELL_FORMED.as_bytes().to_vec();
        header[at] = byte;
        let right = match at {
            2 | 35 | 52 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        };
        prop_assert_eq!(TraceContext::read(&header.into(), None).is_ok(), right);
    }
}
