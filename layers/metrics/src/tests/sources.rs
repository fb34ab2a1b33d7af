//! Several sources, one layer.

use tower::Layer;

use super::{Source, ack, measured, settles};
use crate::MetricsLayer;
use tower_mq_delivery::{Message, Outcome};

fn consumed(name: &str) -> String {
    format!(
        "messaging.client.consumed.messages{{messaging.destination.name={name},messaging.operation.name=receive}}"
    )
}

#[test]
fn layers_and_services_ask_for_no_handle() {
    measured(async |recorder| {
        let layer = MetricsLayer::delivery();
        let service = layer.layer(settles(async |_| Outcome::Ack));
        let _ = (service.clone(), layer.observer(), MetricsLayer::process().layer(()));
        assert_eq!((recorder.registered(), recorder.described().len()), (0, 0));
    });
}

#[test]
fn handles_are_asked_for_once_for_each_source() {
    measured(async |recorder| {
        let (layer, source) = (MetricsLayer::delivery(), Source::new("orders"));
        ack(&layer, &source, Some("a")).await;
        let registered = recorder.registered();
        for key in ["a", "b", "c"] {
            ack(&layer, &source, Some(key)).await;
            ack(&layer.clone(), &source, Some(key)).await;
        }
        assert_eq!(recorder.registered(), registered);
    });
}

#[test]
fn sources_that_take_turns_are_not_mistaken_for_each_other() {
    measured(async |recorder| {
        let names = ["tea", "coffee", "bills"];
        let layer = MetricsLayer::delivery();
        // More than are found at once, so that they drive each other out.
        let sources: Vec<_> = (0..300).map(|number| (number % 3, Source::new(names[number % 3]))).collect();
        for round in 1..4 {
            for (name, source) in &sources {
                for _ in 0..=*name {
                    ack(&layer, source, None).await;
                }
            }
            for (name, expected) in names.into_iter().zip(1..) {
                assert_eq!(recorder.counter(&consumed(name)), round * 100 * expected, "{name}");
            }
        }
    });
}

#[test]
fn sources_made_and_dropped_for_ever_have_a_bounded_number_of_series() {
    measured(async |recorder| {
        let layer = MetricsLayer::delivery();
        let mut at_most = 0;
        for number in 0..500 {
            let name = format!("reply-{number}").leak();
            ack(&layer, &Source::new(name), None).await;
            if number == super::super::destinations::NAMED {
                at_most = recorder.series().len();
            }
        }
        assert_eq!(recorder.series().len(), at_most);
        let other = "messaging.client.consumed.messages{messaging.system=_OTHER,messaging.destination.name=_OTHER,messaging.operation.name=receive}";
        assert_eq!(recorder.counter(other), 500 - super::super::destinations::NAMED as u64);
        assert_eq!(recorder.counter(&consumed("reply-3")), 1);
    });
}

#[test]
fn a_source_is_not_kept_alive() {
    measured(async |_| {
        let (layer, source) = (MetricsLayer::delivery(), Source::new("orders"));
        ack(&layer, &source, Some("a")).await;
        let origin = std::sync::Arc::downgrade(source.0.origin());
        drop(source);
        assert!(origin.upgrade().is_none());
    });
}

#[test]
fn messages_that_no_source_made_are_measured_and_nothing_is_kept_for_them() {
    measured(async |recorder| {
        let service = MetricsLayer::delivery().layer(settles(async |_| Outcome::Ack));
        let (delivery, _probe) = tower_mq_testing::delivery(Message::new("two teas"));
        let observed_by_others = delivery.message().origin().is_observed();
        tower::ServiceExt::oneshot(service, delivery).await.expect("settled");
        assert!(
            recorder.series().iter().any(|series| series.starts_with("messaging.client.consumed.messages"))
        );
        assert!(!observed_by_others);
        assert!(!Message::new("").origin().is_observed());
    });
}

#[tokio::test]
async fn without_a_recorder_no_source_is_observed() {
    let (layer, source) = (MetricsLayer::delivery(), Source::new("orders"));
    ack(&layer, &source, Some("a")).await;
    assert!(!source.0.origin().is_observed());
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_comes_late_hears_of_what_comes_after_it() {
    let (layer, source) = (MetricsLayer::delivery(), Source::new("orders"));
    let mut waits = layer.layer(settles(|_| std::future::pending()));
    let early = tower::Service::call(&mut waits, source.deliver(Some("a")).0);
    let recorder = super::Recorder::default();
    let _local = metrics::set_default_local_recorder(&recorder);
    ack(&layer, &source, Some("a")).await;
    drop(early);
    assert_eq!(recorder.counter("messaging.client.consumed.messages{messaging.operation.name=receive}"), 1);
    assert_eq!(recorder.gauge("tower_mq.window.in_use"), Some(0.0));
    assert!(source.0.origin().is_observed());
}
