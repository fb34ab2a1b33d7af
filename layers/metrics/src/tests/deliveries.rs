use std::{
    future::{pending, ready},
    panic::AssertUnwindSafe,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::sleep;
use tokio_test::task::spawn;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{Batch, BoxError, Delivery, Message, Outcome, Outcomes};

use super::{Source, ack, measured, settles};
use crate::MetricsLayer;

const CONSUMED: &str = "messaging.client.consumed.messages{messaging.operation.name=receive}";
const IN_USE: &str = "tower_mq.window.in_use";
const SHARE: &str = "tower_mq.window.largest_key_share";

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_delivery_is_counted_once_and_timed_from_taken_to_settled() {
    measured(async |recorder| {
        let outcomes =
            [Outcome::Ack, Outcome::Release, Outcome::Retry { after: ms(1) }, Outcome::reject("no tea")];
        let (layer, source) = (MetricsLayer::delivery(), Source::new("orders"));
        for (outcome, duration) in outcomes.into_iter().zip(1..) {
            let name = outcome.name();
            let service = layer.layer(settles(move |_| {
                let outcome = outcome.clone();
                async move {
                    sleep(ms(duration)).await;
                    outcome
                }
            }));
            service.oneshot(source.deliver(None).0).await.expect("settled");
            let series = format!("tower_mq.delivery.duration{{tower_mq.outcome={name}}}");
            assert_eq!(recorder.histogram(&series), [ms(duration).as_secs_f64()], "{name}");
            assert_eq!(recorder.counter(CONSUMED), duration);
        }
    });
}

#[test]
fn a_retry_is_not_a_second_consumed_message() {
    measured(async |recorder| {
        let tries = MetricsLayer::process().layer(service_fn(|message: Message| {
            ready(if message.tries() < 3 { Err(BoxError::from("not yet")) } else { Ok(Outcome::Ack) })
        }));
        let service = MetricsLayer::delivery().layer(settles(move |message: Message| {
            let tries = tries.clone();
            async move {
                loop {
                    match tries.clone().oneshot(message.clone()).await {
                        Ok(outcome) => return outcome,
                        Err(_) => message.again(),
                    }
                }
            }
        }));
        service.oneshot(Source::new("orders").deliver(None).0).await.expect("settled");
        assert_eq!(recorder.counter(CONSUMED), 1);
        let tries = "messaging.process.duration{messaging.operation.name=process";
        assert_eq!(recorder.histogram(&format!("{tries}}}")).len(), 1);
        assert_eq!(recorder.histogram(&format!("{tries},error.type=_OTHER}}")).len(), 2);
    });
}

#[test]
fn the_window_is_free_again_however_a_delivery_ends() {
    type Ends = fn(Delivery) -> std::pin::Pin<Box<dyn Future<Output = Result<(), BoxError>>>>;
    measured(async |recorder| {
        let source = Source::new("orders");
        let layer = MetricsLayer::delivery();
        let duration = |ending: &str| {
            recorder.histogram(&format!("tower_mq.delivery.duration{{tower_mq.outcome={ending}}}")).len()
        };

        // Never polled, and dropped in the middle.
        let waits: Ends = |delivery| {
            Box::pin(async move {
                let _delivery = delivery;
                pending().await
            })
        };
        let mut service = layer.layer(service_fn(waits));
        let never = service.call(source.deliver(Some("a")).0);
        let mut half = spawn(service.call(source.deliver(Some("a")).0));
        assert!(half.poll().is_pending());
        assert_eq!((recorder.gauge(IN_USE), recorder.gauge(SHARE)), (Some(2.0), Some(1.0)));
        drop(never);
        assert_eq!(recorder.gauge(IN_USE), Some(1.0));
        drop(half);
        assert_eq!((recorder.gauge(IN_USE), recorder.gauge(SHARE)), (Some(0.0), Some(0.0)));
        assert_eq!((duration("dropped"), recorder.counter("tower_mq.dropped")), (2, 2));

        // A panic in the call, and a panic of the future.
        let in_call: Ends = |_| panic!("planned");
        let mut service = layer.layer(service_fn(in_call));
        let call =
            std::panic::catch_unwind(AssertUnwindSafe(|| drop(service.call(source.deliver(Some("a")).0))));
        assert!(call.is_err());
        assert_eq!(recorder.gauge(IN_USE), Some(0.0));
        let later: Ends = |_| Box::pin(async { panic!("planned") });
        let call = layer.layer(service_fn(later)).oneshot(source.deliver(Some("a")).0);
        assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
        assert_eq!((recorder.gauge(IN_USE), recorder.gauge(SHARE)), (Some(0.0), Some(0.0)));
        assert_eq!(duration("dropped"), 4);

        // An error outside of Settle.
        let fails: Ends = |_| Box::pin(async { Err("broken".into()) });
        let call = layer.layer(service_fn(fails)).oneshot(source.deliver(None).0);
        assert!(call.await.is_err());
        assert_eq!((recorder.gauge(IN_USE), duration("error")), (Some(0.0), 1));

        // Its generation ended, and the source is about to end.
        let stale = source.deliver(Some("a")).0;
        source.0.end();
        layer.layer(settles(async |_| Outcome::Ack)).oneshot(stale).await.expect("settled");
        assert_eq!((recorder.gauge(IN_USE), recorder.counter("tower_mq.stale")), (Some(0.0), 1));
    });
}

#[test]
fn a_future_that_is_kept_after_its_end_holds_no_place() {
    measured(async |recorder| {
        let mut service = MetricsLayer::delivery().layer(settles(async |_| Outcome::Ack));
        let mut response = spawn(service.call(Source::new("orders").deliver(Some("a")).0));
        assert!(response.poll().is_ready());
        assert_eq!(recorder.gauge(IN_USE), Some(0.0));
        drop(response);
        assert_eq!(recorder.gauge(IN_USE), Some(0.0));
    });
}

#[test]
fn the_share_of_the_largest_key_is_exact() {
    measured(async |recorder| {
        let source = Source::new("orders");
        let mut service = MetricsLayer::delivery().layer(settles(|_| pending()));
        let mut take = |key| service.call(source.deliver(key).0);
        let a = [take(Some("a")), take(Some("a")), take(Some("a"))];
        let (b, empty, none) = (take(Some("b")), take(Some("")), take(None));
        assert_eq!(recorder.gauge(SHARE), Some(0.5));
        drop(a);
        assert_eq!(recorder.gauge(SHARE), Some(1.0 / 3.0));
        drop((b, empty));
        assert_eq!(recorder.gauge(SHARE), Some(0.0), "what has no key is no key");
        drop(none);
        assert_eq!(recorder.gauge(SHARE), Some(0.0));
    });
}

#[test]
fn the_size_of_the_window_is_shown_if_there_is_one() {
    measured(async |recorder| {
        ack(&MetricsLayer::delivery(), &Source::with_window("orders", usize::MAX), None).await;
        assert_eq!(recorder.gauge("tower_mq.window.size"), None);
        ack(&MetricsLayer::delivery(), &Source::with_window("orders", 32), None).await;
        assert_eq!(recorder.gauge("tower_mq.window.size"), Some(32.0));
    });
}

#[test]
fn the_members_of_a_batch_are_counted_one_by_one() {
    measured(async |recorder| {
        let source = Source::new("orders");
        let batch: Batch<_> = ["a", "b", "b", "c"].map(|key| source.message(Some(key))).to_vec().into();
        let mut service = MetricsLayer::delivery()
            .layer(service_fn(|_: Batch<Message>| ready(Ok::<_, BoxError>(Outcomes::Each(Vec::new())))));
        let response = service.call(batch);
        assert_eq!((recorder.counter(CONSUMED), recorder.gauge(IN_USE)), (4, Some(4.0)));
        assert_eq!(recorder.gauge(SHARE), Some(0.5));
        response.await.expect("answered");
        assert_eq!((recorder.gauge(IN_USE), recorder.gauge(SHARE)), (Some(0.0), Some(0.0)));
        assert_eq!(recorder.histogram("tower_mq.delivery.duration{tower_mq.outcome=mixed}").len(), 1);
    });
}
