//! What is written about a failure.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio_test::{assert_ready_ok, task};
use tower::{Layer, Service, service_fn};
use tower_mq_delivery::{BoxError, ErrorPolicy, Message};
use tracing::{Event, Level, Metadata, Subscriber, field, span};

use super::Source;
use crate::SettleLayer;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl field::Visit for Line {
            fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
                self.0 += &format!("{}={value:?} ", field.name());
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn log_of(layer: &SettleLayer, panics: bool) -> Vec<(Level, String)> {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        let mut service = layer.layer(service_fn(|_: Message| async {
            assert!(!panics, "boom");
            Err::<(), BoxError>("down".into())
        }));
        assert_ready_ok!(task::spawn(service.call(Source::new().deliver())).poll());
    });
    let lines = log.0.lock().clone();
    assert!(
        lines.iter().all(|(_, line)| line.contains("destination=orders") && line.contains("attempt=1")),
        "{lines:?}"
    );
    assert!(
        lines.iter().all(|(_, line)| !line.contains("secret")),
        "the payload is nobody's business: {lines:?}"
    );
    lines
}

#[test]
fn a_failure_is_logged_louder_when_the_message_does_not_come_again() {
    let levels = |layer: SettleLayer, panics| {
        log_of(&layer, panics).iter().map(|(level, _)| *level).collect::<Vec<_>>()
    };
    assert_eq!(levels(SettleLayer::new(), false), [Level::DEBUG]);
    assert_eq!(levels(SettleLayer::new().on_error(ErrorPolicy::reject()), false), [Level::WARN]);
    assert_eq!(levels(SettleLayer::new().before(), false), [Level::WARN]);
    assert_eq!(levels(SettleLayer::new(), true), [Level::ERROR, Level::DEBUG]);
}
