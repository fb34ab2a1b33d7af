//! What the labels may be, and how many series there are.

use std::{future::ready, time::Duration};

use metrics::Unit;
use tower::{Layer, ServiceExt, service_fn};
use tower_mq_delivery::{
    Batch, BoxError, Circuit, ClosedBy, Delivery, Event, Failure, Message, Outcome, Settled,
};

use super::{Recorder, Source, ack, measured};
use crate::MetricsLayer;

/// Everything that a message or an error can bring along has this in it.
const ODD: &str = "k\u{2028}\"}\\n,=\u{0}";

/// Deliveries and events that bring odd things along.
async fn odd(recorder: &Recorder) {
    let source = Source::new("orders");
    let message = |number: usize| {
        Message::builder(ODD)
            .key(format!("{ODD}{number}"))
            .id(format!("{ODD}id-{number}"))
            .header("odd", ODD)
            .generation(source.0.clone())
            .build()
    };
    let fails = MetricsLayer::process().layer(service_fn(|message: Message| {
        let key = message.key().map(|key| String::from_utf8_lossy(key).into_owned()).unwrap_or_default();
        ready(match message.tries() {
            1 => Err(BoxError::from(key)),
            2 => Err(Failure::reject(key).into()),
            _ => Ok(Outcome::reject(key)),
        })
    }));
    let service = MetricsLayer::delivery().layer(service_fn(move |delivery: Delivery| {
        let (message, acker) = delivery.into_parts();
        let fails = fails.clone();
        async move {
            for _ in 0..3 {
                let _ = fails.clone().oneshot(message.clone()).await;
                message.again();
            }
            let outcome = Outcome::reject(ODD);
            let settlement = acker.settle(outcome.clone()).await?;
            Ok::<_, BoxError>(Settled::new(outcome, settlement))
        }
    }));
    for number in 0..10 {
        let (delivery, _probe) = tower_mq_testing::delivery(message(number));
        service.clone().oneshot(delivery).await.expect("settled");
    }
    let (message, error) = (&message(11), &BoxError::from(ODD));
    let batch = &Batch::new(vec![message.clone()], ClosedBy::Size);
    for event in [
        Event::NotHandled { message },
        Event::Panicked { message: Some(message) },
        Event::Reconnecting { attempt: 1, error },
        Event::Warned { warning: ODD },
        Event::Retried { message, after: Duration::ZERO },
        Event::Parked { message },
        Event::Resumed { message },
        Event::Gathered { batch },
        Event::Duplicate { message },
        Event::Unidentified { message },
        Event::StoreFailed { error },
        Event::DeadLettered { message, reason: ODD },
        Event::NotDeadLettered { message, error, given_up: true },
        Event::Lane { lane: 0, waiting: 1 },
        Event::Circuit(Circuit::Open),
    ] {
        source.0.origin().report(&event);
    }
    assert!(recorder.series().len() > 20);
}

#[test]
fn no_name_and_no_label_is_made_of_a_message_or_an_error() {
    measured(async |recorder| {
        odd(&recorder).await;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._{}=,".contains(c);
        for series in recorder.series() {
            assert!(series.chars().all(allowed), "{series:?}");
            assert!(!series.contains("id-"), "{series:?}");
        }
    });
}

#[test]
fn a_hundred_thousand_keys_have_the_series_of_one() {
    measured(async |recorder| {
        let (layer, source) = (MetricsLayer::delivery(), Source::new("orders"));
        ack(&layer, &source, Some("0")).await;
        let series = recorder.series();
        for number in 1..100_000 {
            ack(&layer, &source, Some(&number.to_string())).await;
        }
        assert_eq!(recorder.series(), series);
    });
}

#[test]
fn every_metric_has_its_unit_and_is_described_once() {
    measured(async |recorder| {
        odd(&recorder).await;
        let described = recorder.described();
        let names: std::collections::BTreeSet<_> = recorder
            .series()
            .iter()
            .map(|series| series.split('{').next().unwrap_or_default().to_owned())
            .collect();
        assert!(names.iter().all(|name| described.contains_key(name)), "{names:?}");
        // All of them were used by this test.
        assert_eq!(described.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
        for (name, (times, unit)) in described {
            let seconds = name.ends_with("duration");
            // Once by each of the two layers.
            assert_eq!(times, 2, "{name}");
            assert_eq!(unit, Some(if seconds { Unit::Seconds } else { Unit::Count }), "{name}");
        }
    });
}
