use std::time::Duration;

use tower_mq_delivery::{Batch, BoxError, Circuit, ClosedBy, Event, Message, Observer, Outcome, Settlement};

use super::{Recorder, Source, ack, measured};
use crate::{MetricsLayer, events::LANES};

/// A source that is observed, and nothing was taken from it.
fn observed(layer: &MetricsLayer) -> Source {
    let source = Source::new("orders");
    assert!(source.0.origin().observe(layer.observer().shared()));
    source
}

fn report(source: &Source, event: &Event<'_>) {
    source.0.origin().report(event);
}

#[test]
fn each_event_is_counted_under_its_own_name() {
    let (message, error) = (Message::new("two teas"), BoxError::from("no tea"));
    let (message, error) = (&message, &error);
    let (outcome, told) = (&Outcome::reject("no tea"), &Outcome::Release);
    let settled = |settlement| Event::Settled { outcome, settlement };
    let failed = |given_up| Event::NotDeadLettered { message, error, given_up };
    let cases: [(Event<'_>, &[&str]); 24] = [
        (Event::Taken, &[]),
        (settled(Settlement::HandedOver), &[]),
        (settled(Settlement::Confirmed), &[]),
        (settled(Settlement::Stale), &["stale"]),
        (settled(Settlement::LeaseLost), &["lease_lost"]),
        (Event::Dropped, &["dropped"]),
        (Event::NotHandled { message }, &["not_handled"]),
        (Event::Panicked { message: Some(message) }, &["panics"]),
        (Event::Connected { generation: 1 }, &[]),
        (Event::Connected { generation: 2 }, &["reconnects"]),
        (Event::Reconnecting { attempt: 0, error }, &[]),
        (Event::Reconnecting { attempt: 1, error }, &["connect.failures"]),
        (Event::Replaced { decided: outcome, told }, &["replaced"]),
        (Event::Warned { warning: "too small" }, &["warnings"]),
        (Event::Lane { lane: 0, waiting: 1 }, &[]),
        (Event::Retried { message, after: Duration::ZERO }, &["retries"]),
        (Event::Parked { message }, &[]),
        (Event::Duplicate { message }, &["duplicates"]),
        (Event::Unidentified { message }, &["unidentified"]),
        (Event::StoreFailed { error }, &["dedup.failures"]),
        (Event::DeadLettered { message, reason: "no tea" }, &["dead_letters"]),
        (failed(false), &["dead_letter.failures"]),
        (failed(true), &["dead_letter.failures", "dead_letter.given_up"]),
        (Event::Circuit(Circuit::Open), &[]),
    ];
    for (event, names) in cases {
        measured(async |recorder: Recorder| {
            report(&observed(&MetricsLayer::delivery()), &event);
            let expected: Vec<_> = names.iter().map(|name| (format!("tower_mq.{name}"), 1)).collect();
            assert_eq!(recorder.counted(), expected, "{event:?}");
        });
    }
}

#[test]
fn gauges_follow_what_is_reported() {
    measured(async |recorder| {
        let (source, message) = (observed(&MetricsLayer::delivery()), &Message::new("two teas"));
        for (circuit, state) in [(Circuit::Open, 2.0), (Circuit::HalfOpen, 1.0), (Circuit::Closed, 0.0)] {
            report(&source, &Event::Circuit(circuit));
            assert_eq!(recorder.gauge("tower_mq.breaker.state"), Some(state));
        }
        report(&source, &Event::Parked { message });
        report(&source, &Event::Parked { message });
        assert_eq!(recorder.gauge("tower_mq.parked"), Some(2.0));
        report(&source, &Event::Resumed { message });
        report(&source, &Event::Resumed { message });
        assert_eq!(recorder.gauge("tower_mq.parked"), Some(0.0));
        report(&source, &Event::Lane { lane: 3, waiting: 2 });
        report(&source, &Event::Lane { lane: 1, waiting: 1 });
        report(&source, &Event::Lane { lane: 3, waiting: 1 });
        let depth = |lane| recorder.gauge(&format!("tower_mq.lane.depth{{tower_mq.lane={lane}}}"));
        assert_eq!([depth("0"), depth("1"), depth("3")], [None, Some(1.0), Some(1.0)]);
    });
}

#[test]
fn a_million_lanes_have_a_bounded_number_of_series() {
    measured(async |recorder| {
        let source = observed(&MetricsLayer::delivery());
        let before = {
            report(&source, &Event::Dropped);
            recorder.series().len()
        };
        for lane in (0..1_000_000).step_by(97).chain(0..LANES) {
            report(&source, &Event::Lane { lane, waiting: 1 });
        }
        assert_eq!(recorder.series().len() - before, LANES + 1);
    });
}

#[test]
fn batches_are_measured_by_what_closed_them() {
    measured(async |recorder| {
        let source = observed(&MetricsLayer::delivery());
        let names = [
            (ClosedBy::Size, "size"),
            (ClosedBy::Wait, "wait"),
            (ClosedBy::Idle, "idle"),
            (ClosedBy::Window, "window"),
            (ClosedBy::Drain, "drain"),
            (ClosedBy::Bytes, "bytes"),
            (ClosedBy::Groups, "groups"),
        ];
        for ((closed_by, name), size) in names.into_iter().zip(1..) {
            let batch = &Batch::new(vec![Message::new("tea"); size], closed_by);
            report(&source, &Event::Gathered { batch });
            let series = format!("tower_mq.batch.size{{tower_mq.closed_by={name}}}");
            assert_eq!(recorder.histogram(&series), [size as f64]);
        }
    });
}

#[test]
fn what_is_set_on_serve_and_by_the_layer_is_told_once() {
    measured(async |recorder| {
        let layer = MetricsLayer::delivery();
        let source = observed(&layer);
        report(&source, &Event::Reconnecting { attempt: 1, error: &"down".into() });
        assert_eq!(recorder.counter("tower_mq.connect.failures"), 1, "before the first delivery");
        assert_eq!(recorder.gauge("tower_mq.window.size"), Some(8.0));
        ack(&layer, &source, None).await;
        ack(&layer.clone(), &source, None).await;
        assert!(!source.0.origin().observe(layer.observer().shared()));
        report(&source, &Event::Dropped);
        assert_eq!(recorder.counter("tower_mq.dropped"), 1);
    });
}

#[test]
fn the_layer_adds_itself_at_the_first_delivery_of_each_source() {
    measured(async |recorder| {
        let layer = MetricsLayer::delivery();
        let sources = [Source::new("orders"), Source::new("orders"), Source::new("orders")];
        for source in &sources {
            ack(&layer, source, None).await;
            ack(&layer, source, None).await;
        }
        sources.iter().for_each(|source| report(source, &Event::Dropped));
        assert_eq!(recorder.counter("tower_mq.dropped"), 3);
    });
}

#[test]
fn counters_begin_at_zero_with_the_first_delivery() {
    measured(async |recorder| {
        ack(&MetricsLayer::delivery(), &Source::new("orders"), None).await;
        let series = recorder.series();
        for name in ["stale", "dropped", "reconnects", "retries", "dead_letters", "panics"] {
            assert!(series.contains(&format!("tower_mq.{name}")), "{name}");
        }
    });
}
