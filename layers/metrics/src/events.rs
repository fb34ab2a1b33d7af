//! What layers, the driver and sources report.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};
use tower_mq_delivery::{Circuit, ClosedBy, Event, Settlement};

use crate::{convention::OTHER, destinations::Destination, own};

/// So many lanes have series of their own; those after them share one.
pub(crate) const LANES: usize = 256;
const REASONS: usize = 8;

/// The handles for what is reported of one source. Counters are made together, so that each begins at zero and its
/// first increase is seen.
pub(crate) struct Events {
    dropped: Counter,
    not_handled: Counter,
    stale: Counter,
    lease_lost: Counter,
    replaced: Counter,
    panics: Counter,
    warnings: Counter,
    reconnects: Counter,
    connect_failures: Counter,
    retries: Counter,
    parked: Gauge,
    duplicates: Counter,
    unidentified: Counter,
    dedup_failures: Counter,
    dead_letters: Counter,
    dead_letter_failures: Counter,
    dead_letters_given_up: Counter,
    breaker: OnceLock<Gauge>,
    lanes: OnceLock<Box<[OnceLock<Gauge>]>>,
    batches: [OnceLock<Histogram>; REASONS],
}

impl Events {
    pub(crate) fn new(destination: &Destination) -> Self {
        let counter = |name: &'static str| counter!(name, destination.labels());
        Self {
            dropped: counter(own::DROPPED),
            not_handled: counter(own::NOT_HANDLED),
            stale: counter(own::STALE),
            lease_lost: counter(own::LEASE_LOST),
            replaced: counter(own::REPLACED),
            panics: counter(own::PANICS),
            warnings: counter(own::WARNINGS),
            reconnects: counter(own::RECONNECTS),
            connect_failures: counter(own::CONNECT_FAILURES),
            retries: counter(own::RETRIES),
            parked: gauge!(own::PARKED, destination.labels()),
            duplicates: counter(own::DUPLICATES),
            unidentified: counter(own::UNIDENTIFIED),
            dedup_failures: counter(own::DEDUP_FAILURES),
            dead_letters: counter(own::DEAD_LETTERS),
            dead_letter_failures: counter(own::DEAD_LETTER_FAILURES),
            dead_letters_given_up: counter(own::DEAD_LETTERS_GIVEN_UP),
            breaker: OnceLock::new(),
            lanes: OnceLock::new(),
            batches: [const { OnceLock::new() }; REASONS],
        }
    }
}

/// Whether there is anything to count in it. What is taken and settled as it should be is counted by the layer.
#[inline]
pub(crate) fn counts(event: &Event<'_>) -> bool {
    let as_usual =
        |settlement: &Settlement| matches!(settlement, Settlement::HandedOver | Settlement::Confirmed);
    match event {
        Event::Taken => false,
        Event::Settled { settlement, .. } => !as_usual(settlement),
        _ => true,
    }
}

impl Destination {
    #[inline]
    pub(crate) fn record(&self, event: &Event<'_>) {
        let events = self.events();
        match *event {
            Event::Lane { lane, waiting } => self.lane(events, lane).set(waiting as f64),
            _ => self.record_rare(events, event),
        }
    }

    #[cold]
    fn record_rare(&self, events: &Events, event: &Event<'_>) {
        match *event {
            Event::Settled { settlement: Settlement::Stale, .. } => events.stale.increment(1),
            Event::Settled { settlement: Settlement::LeaseLost, .. } => events.lease_lost.increment(1),
            Event::Dropped => events.dropped.increment(1),
            Event::NotHandled { .. } => events.not_handled.increment(1),
            Event::Panicked { .. } => events.panics.increment(1),
            Event::Connected { generation } if generation > 1 => events.reconnects.increment(1),
            // The attempt of number 0 is the loss of the connection.
            Event::Reconnecting { attempt, .. } if attempt > 0 => events.connect_failures.increment(1),
            Event::Replaced { .. } => events.replaced.increment(1),
            Event::Warned { .. } => events.warnings.increment(1),
            Event::Retried { .. } => events.retries.increment(1),
            Event::Parked { .. } => events.parked.increment(1.0),
            Event::Resumed { .. } => events.parked.decrement(1.0),
            Event::Gathered { batch } => self.batch(events, batch.closed_by()).record(batch.len() as f64),
            Event::Duplicate { .. } => events.duplicates.increment(1),
            Event::Unidentified { .. } => events.unidentified.increment(1),
            Event::StoreFailed { .. } => events.dedup_failures.increment(1),
            Event::DeadLettered { .. } => events.dead_letters.increment(1),
            Event::NotDeadLettered { given_up, .. } => {
                events.dead_letter_failures.increment(1);
                events.dead_letters_given_up.increment(given_up.into());
            }
            Event::Circuit(circuit) => {
                let breaker = events.breaker.get_or_init(|| gauge!(own::BREAKER_STATE, self.labels()));
                breaker.set(match circuit {
                    Circuit::Closed => 0.0,
                    Circuit::HalfOpen => 1.0,
                    Circuit::Open => 2.0,
                });
            }
            _ => {}
        }
    }

    #[inline]
    fn lane<'a>(&self, events: &'a Events, lane: usize) -> &'a Gauge {
        let lanes = events.lanes.get_or_init(|| (0..=LANES).map(|_| OnceLock::new()).collect());
        lanes[lane.min(LANES)].get_or_init(|| {
            let mut labels = self.labels();
            labels.push(match lane {
                0..LANES => Label::new(own::LANE, lane.to_string()),
                _ => Label::from_static_parts(own::LANE, OTHER),
            });
            gauge!(own::LANE_DEPTH, labels)
        })
    }

    fn batch<'a>(&self, events: &'a Events, closed_by: ClosedBy) -> &'a Histogram {
        let (place, reason) = match closed_by {
            ClosedBy::Size => (0, "size"),
            ClosedBy::Bytes => (1, "bytes"),
            ClosedBy::Wait => (2, "wait"),
            ClosedBy::Idle => (3, "idle"),
            ClosedBy::Window => (4, "window"),
            ClosedBy::Groups => (5, "groups"),
            ClosedBy::Drain => (6, "drain"),
            _ => (7, OTHER),
        };
        events.batches[place]
            .get_or_init(|| histogram!(own::BATCH_SIZE, self.labels_with(own::CLOSED_BY, reason)))
    }
}
