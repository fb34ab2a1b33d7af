mod bounded;
mod contract;
mod deliveries;
mod events;
mod recorder;
mod sources;
mod tries;

use std::{future::Future, sync::Arc};

use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Capabilities, Delivery, Generation, Message, Origin, Outcome, Settled};
use tower_mq_testing::Probe;

pub(crate) use recorder::Recorder;

use crate::MetricsLayer;

/// Runs on a paused clock, on one thread, with a recorder for this thread alone.
fn measured<F: Future>(test: impl FnOnce(Recorder) -> F) -> F::Output {
    let recorder = Recorder::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    metrics::with_local_recorder(&recorder, || runtime.expect("a runtime").block_on(test(recorder.clone())))
}

/// A source of single deliveries.
struct Source(Arc<Generation>);

impl Source {
    fn new(name: &'static str) -> Self {
        Self::with_window(name, 8)
    }

    fn with_window(name: &'static str, window: usize) -> Self {
        Self(Generation::first(Arc::new(Origin::new(name, "test", window, Capabilities::unknown()))))
    }

    fn message(&self, key: Option<&str>) -> Message {
        let key = key.map(str::to_owned);
        Message::builder("two teas").maybe_key(key).id("id-7").generation(self.0.clone()).build()
    }

    fn deliver(&self, key: Option<&str>) -> (Delivery, Probe) {
        tower_mq_testing::delivery(self.message(key))
    }
}

/// Settles with what `decide` says.
fn settles<F>(
    decide: impl FnMut(Message) -> F + Clone,
) -> impl Service<
    Delivery,
    Response = Settled,
    Error = BoxError,
    Future = impl Future<Output = Result<Settled, BoxError>>,
> + Clone
where
    F: Future<Output = Outcome>,
{
    service_fn(move |delivery: Delivery| {
        let (message, acker) = delivery.into_parts();
        let decision = (decide.clone())(message);
        async move {
            let outcome = decision.await;
            let settlement = acker.settle(outcome.clone()).await?;
            Ok(Settled::new(outcome, settlement))
        }
    })
}

/// One delivery through `layer`, acked.
async fn ack(layer: &MetricsLayer, source: &Source, key: Option<&str>) {
    let service = layer.layer(settles(async |_| Outcome::Ack));
    let (delivery, _probe) = source.deliver(key);
    service.oneshot(delivery).await.expect("settled");
}
