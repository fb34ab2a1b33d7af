//! Names of our own, for what the conventions have none.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Histogram, `s`: from the time a delivery was taken to the time it was settled.
pub const DELIVERY_DURATION: &str = "tower_mq.delivery.duration";
/// Gauge: the most deliveries that are taken and not settled. Not there for a source without a limit.
pub const WINDOW_SIZE: &str = "tower_mq.window.size";
/// Gauge: deliveries that are taken and not settled. Those of a lost connection count until their handlers end.
pub const WINDOW_IN_USE: &str = "tower_mq.window.in_use";
/// Gauge, 0 to 1: the share of those that have the same key, for the key that has most of them. 0: none has a key.
pub const LARGEST_KEY_SHARE: &str = "tower_mq.window.largest_key_share";
/// Gauge: deliveries that wait in a lane.
pub const LANE_DEPTH: &str = "tower_mq.lane.depth";
/// Histogram: members of a batch.
pub const BATCH_SIZE: &str = "tower_mq.batch.size";
/// Counter: tries in place after the first.
pub const RETRIES: &str = "tower_mq.retries";
/// Gauge: messages that sleep until their next try.
pub const PARKED: &str = "tower_mq.parked";
/// Counter: messages that were not handled, because another one with their id was.
pub const DUPLICATES: &str = "tower_mq.duplicates";
/// Counter: messages without an id by which a duplicate could be told.
pub const UNIDENTIFIED: &str = "tower_mq.unidentified";
/// Counter: the store that remembers ids did not answer.
pub const DEDUP_FAILURES: &str = "tower_mq.dedup.failures";
/// Counter: copies stored in the dead-letter queue.
pub const DEAD_LETTERS: &str = "tower_mq.dead_letters";
/// Counter: attempts to store such a copy that failed.
pub const DEAD_LETTER_FAILURES: &str = "tower_mq.dead_letter.failures";
/// Counter: messages that were released, because their copy could not be stored.
pub const DEAD_LETTERS_GIVEN_UP: &str = "tower_mq.dead_letter.given_up";
/// Gauge: 0 the breaker is closed, 1 half open, 2 open.
pub const BREAKER_STATE: &str = "tower_mq.breaker.state";
/// Counter: decisions after the end of the connection that the delivery came from.
pub const STALE: &str = "tower_mq.stale";
/// Counter: decisions after the broker's lock had run out.
pub const LEASE_LOST: &str = "tower_mq.lease_lost";
/// Counter: deliveries that were dropped undecided, and so released.
pub const DROPPED: &str = "tower_mq.dropped";
/// Counter: deliveries that came to no handler, because their connection had ended or their source wants them back.
pub const NOT_HANDLED: &str = "tower_mq.not_handled";
/// Counter: outcomes that the broker cannot do, and that the source turned into others.
pub const REPLACED: &str = "tower_mq.replaced";
/// Counter: connections or assignments after the first one.
pub const RECONNECTS: &str = "tower_mq.reconnects";
/// Counter: attempts to connect that failed.
pub const CONNECT_FAILURES: &str = "tower_mq.connect.failures";
/// Counter: handlers and services that panicked.
pub const PANICS: &str = "tower_mq.panics";
/// Counter: things that the user should change.
pub const WARNINGS: &str = "tower_mq.warnings";

/// Upper bounds for [`BATCH_SIZE`].
pub const BATCH_BUCKETS: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0];

/// How a delivery ended: `ack`, `release`, `retry` or `reject`; `mixed`: several outcomes in one answer; `error`: it
/// could not be settled; `dropped`: its future was dropped or panicked.
pub const OUTCOME: &str = "tower_mq.outcome";
/// The number of a lane, from 0.
pub const LANE: &str = "tower_mq.lane";
/// Why a batch was closed: `size`, `bytes`, `wait`, `idle`, `window`, `groups` or `drain`.
pub const CLOSED_BY: &str = "tower_mq.closed_by";

/// Tells the recorder the units.
pub(crate) fn describe() {
    let gauges = [
        (WINDOW_SIZE, "The most deliveries that are taken and not settled."),
        (WINDOW_IN_USE, "Deliveries that are taken and not settled."),
        (
            LARGEST_KEY_SHARE,
            "The largest key's share of the deliveries that are taken and not settled, 0 to 1.",
        ),
        (LANE_DEPTH, "Deliveries that wait in a lane."),
        (PARKED, "Messages that sleep until their next try."),
        (BREAKER_STATE, "The state of the breaker: 0 closed, 1 half open, 2 open."),
    ];
    for (name, what) in gauges {
        describe_gauge!(name, Unit::Count, what);
    }
    let counters = [
        (RETRIES, "Tries in place after the first."),
        (DUPLICATES, "Messages that were not handled, because another one with their id was."),
        (UNIDENTIFIED, "Messages without an id by which a duplicate could be told."),
        (DEDUP_FAILURES, "Requests that the store of the ids did not answer."),
        (DEAD_LETTERS, "Copies stored in the dead-letter queue."),
        (DEAD_LETTER_FAILURES, "Attempts to store a dead letter that failed."),
        (DEAD_LETTERS_GIVEN_UP, "Messages that were released, because no dead letter could be stored."),
        (STALE, "Decisions after the end of the connection that the delivery came from."),
        (LEASE_LOST, "Decisions after the broker's lock had run out."),
        (DROPPED, "Deliveries that were dropped undecided, and so released."),
        (NOT_HANDLED, "Deliveries that were released before a handler saw them."),
        (REPLACED, "Outcomes that the broker cannot do, and that were turned into others."),
        (RECONNECTS, "Connections or assignments after the first one."),
        (CONNECT_FAILURES, "Attempts to connect that failed."),
        (PANICS, "Handlers and services that panicked."),
        (WARNINGS, "Things that should be changed; they are in the log."),
    ];
    for (name, what) in counters {
        describe_counter!(name, Unit::Count, what);
    }
    describe_histogram!(DELIVERY_DURATION, Unit::Seconds, "Time from a delivery's taking to its settlement.");
    describe_histogram!(BATCH_SIZE, Unit::Count, "Members of a batch.");
}
