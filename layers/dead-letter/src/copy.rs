//! The copy of a rejected message.

use std::time::SystemTime;

use tower_mq_delivery::{
    DEAD_LETTER_ATTEMPTS, DEAD_LETTER_FIRST_FAILURE, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON,
    DEAD_LETTER_TRIES, Message, Publication, Turn, Value,
};

use crate::layer::Settings;

/// Brokers limit all headers together: RabbitMQ to 128 KiB with the defaults.
const LONGEST_REASON: usize = 1024;

pub(crate) fn copy(settings: &Settings, message: &Message, reason: &str) -> Publication {
    let mut copied = message.clone();
    // Whatever the publisher is made of, it must not pass the turn of the delivery.
    let _ours = copied.set_turn(Turn::detached());
    let attempts = message.attempt().unwrap_or(if message.redelivered() { 2 } else { 1 });
    let copy = Publication::new(copied)
        .header(DEAD_LETTER_REASON, cut(reason))
        .header(DEAD_LETTER_ATTEMPTS, attempts)
        .header(DEAD_LETTER_TRIES, message.tries())
        .header(DEAD_LETTER_QUEUE, message.destination().into_owned())
        .header(DEAD_LETTER_FIRST_FAILURE, message.first_failure().unwrap_or_else(SystemTime::now));
    match &settings.destination {
        Some(destination) => copy.to(destination(message)),
        None => copy,
    }
}

/// The reason, or as much of it as has room.
fn cut(reason: &str) -> Value<'static> {
    if reason.len() <= LONGEST_REASON {
        return reason.to_owned().into();
    }
    let end = (0..=LONGEST_REASON - '…'.len_utf8()).rev().find(|end| reason.is_char_boundary(*end));
    format!("{}…", &reason[..end.unwrap_or_default()]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        let text = |reason: &str| cut(reason).as_str().map(str::to_owned).expect("it is text");
        assert_eq!(text("no such order"), "no such order");
        assert_eq!(text(&"r".repeat(1024)), "r".repeat(1024));
        assert_eq!(text(&"r".repeat(1025)), format!("{}…", "r".repeat(1021)));
        let long = text(&"ä".repeat(600));
        assert_eq!((long.len(), long.chars().rev().nth(1)), (1023, Some('ä')));
    }
}
