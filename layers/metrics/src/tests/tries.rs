use std::{
    future::{Future, pending, ready},
    panic::AssertUnwindSafe,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, DynError, Failure, Message, Outcome};

use super::{Recorder, Source, measured};
use crate::{MetricsLayer, tries::NAMED};

async fn try_once<F: Future<Output = Result<Outcome, BoxError>>>(
    layer: &MetricsLayer,
    run: impl FnMut(Message) -> F,
) {
    let _ = layer.layer(service_fn(run)).oneshot(Source::new("orders").message(Some("a"))).await;
}

fn durations(recorder: &Recorder, error: &str) -> Vec<f64> {
    let error = if error.is_empty() { String::new() } else { format!(",error.type={error}") };
    recorder.histogram(&format!("messaging.process.duration{{messaging.operation.name=process{error}}}"))
}

#[test]
fn each_try_is_timed_and_has_an_error_type_if_it_failed() {
    measured(async |recorder| {
        let layer = MetricsLayer::process();
        try_once(&layer, async |_| {
            sleep(Duration::from_secs(2)).await;
            Ok(Outcome::Ack)
        })
        .await;
        assert_eq!(durations(&recorder, ""), [2.0]);
        try_once(&layer, async |_| {
            sleep(Duration::from_secs(3)).await;
            Err(Failure::reject("no tea").into())
        })
        .await;
        assert_eq!((durations(&recorder, "reject"), durations(&recorder, "").len()), (vec![3.0], 1));
        try_once(&layer, async |_| Ok(Outcome::Retry { after: Duration::ZERO })).await;
        assert_eq!(durations(&recorder, "retry"), [0.0]);
    });
}

#[test]
fn a_try_that_is_cut_off_is_timed_as_cancelled() {
    measured(async |recorder| {
        let layer = MetricsLayer::process();
        let cut_off = timeout(Duration::from_secs(4), try_once(&layer, |_| pending()));
        assert!(cut_off.await.is_err());
        assert_eq!(durations(&recorder, "cancelled"), [4.0]);
    });
}

#[test]
fn a_panic_goes_on_and_is_timed() {
    measured(async |recorder| {
        let layer = MetricsLayer::process();
        let panics = try_once(&layer, async |_| panic!("planned"));
        assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
        assert_eq!(durations(&recorder, "panic"), [0.0]);
    });
}

#[test]
fn users_name_their_own_errors() {
    fn name(error: &DynError) -> Option<&'static str> {
        error.is::<tower::timeout::error::Elapsed>().then_some("slow")
    }
    measured(async |recorder| {
        let layer = MetricsLayer::process().error_type(name);
        try_once(&layer, |_| ready(Err(tower::timeout::error::Elapsed::new().into()))).await;
        try_once(&layer, |_| ready(Err("no tea".into()))).await;
        assert_eq!((durations(&recorder, "slow").len(), durations(&recorder, "_OTHER").len()), (1, 1));
    });
}

#[test]
fn too_many_names_of_a_user_share_a_series() {
    fn name(error: &DynError) -> Option<&'static str> {
        Some(error.to_string().leak())
    }
    measured(async |recorder| {
        let layer = MetricsLayer::process().error_type(name);
        for number in (0..1_000).chain(0..10) {
            try_once(&layer, |_| ready(Err(number.to_string().into()))).await;
        }
        assert_eq!(recorder.series().len(), NAMED + 1);
        assert_eq!(
            (durations(&recorder, "5").len(), durations(&recorder, "_OTHER").len()),
            (2, 1_000 - NAMED)
        );
    });
}

#[test]
fn tries_alone_observe_no_source() {
    measured(async |_| {
        let source = Source::new("orders");
        let service = MetricsLayer::process().layer(service_fn(|_: Message| ready(Ok::<_, BoxError>(()))));
        service.oneshot(source.message(None)).await.expect("handled");
        assert!(!source.0.origin().is_observed());
    });
}
