//! A stack runs exactly one delivery at a time, and `by_key(4)` beneath it exactly four, under every middleware of
//! tower that is generic in its request. Each key stays in order.

use std::{collections::HashMap, future::Ready, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tower::{
    BoxError, Layer, Service, ServiceBuilder,
    buffer::BufferLayer,
    filter::{AsyncFilterLayer, FilterLayer},
    layer::layer_fn,
    limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, RateLimitLayer},
    load_shed::LoadShedLayer,
    retry::{Policy, RetryLayer},
    service_fn,
    spawn_ready::SpawnReadyLayer,
    steer::Steer,
    timeout::TimeoutLayer,
    util::{
        AndThenLayer, BoxCloneService, BoxCloneSyncService, BoxService, MapErrLayer, MapFutureLayer,
        MapRequestLayer, MapResponseLayer, MapResultLayer, ThenLayer, option_layer,
    },
};
use tower_mq::{Delivery, Message, Outcome, PartitionLayer, serve, source::from_stream};

const DELIVERIES: usize = 200;
const KEYS: usize = 23;

/// What a handler saw: how many ran at once, and in which order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    running: usize,
    peak: usize,
    handled: usize,
    last: HashMap<Vec<u8>, u8>,
    out_of_order: usize,
}

impl Log {
    fn handler(
        &self,
    ) -> impl Service<Delivery, Response = (), Error = BoxError, Future: Send> + Clone + Send + Sync + 'static
    {
        let log = self.clone();
        service_fn(move |delivery: Delivery| {
            let log = log.clone();
            async move {
                let number = delivery.message().payload()[0];
                let key = delivery.message().key().map(|key| key.to_vec()).unwrap_or_default();
                log.begin(key, number);
                tokio::time::sleep(Duration::from_millis(1 + u64::from(number) % 3)).await;
                log.0.lock().running -= 1;
                delivery.settle(Outcome::Ack).await?;
                Ok(())
            }
        })
    }

    fn begin(&self, key: Vec<u8>, number: u8) {
        let mut seen = self.0.lock();
        seen.running += 1;
        seen.handled += 1;
        seen.peak = seen.peak.max(seen.running);
        if seen.last.insert(key, number).is_some_and(|last| last >= number) {
            seen.out_of_order += 1;
        }
    }

    fn check(&self, at_once: usize) {
        let seen = self.0.lock();
        assert_eq!(seen.handled, DELIVERIES, "each delivery is handled once");
        assert_eq!(seen.peak, at_once, "so many run at once");
        assert_eq!(seen.out_of_order, 0, "each key is in order");
    }
}

async fn run<S>(stack: S)
where
    S: Service<Delivery> + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    let deliveries = stream::iter(0..DELIVERIES)
        .map(|i| Delivery::detached(Message::builder(vec![i as u8]).key(format!("k{}", i % KEYS)).build()));
    let report = serve(from_stream(deliveries), stack).await.expect("the stream ends well");
    assert_eq!((report.counts.acked, report.errors), (DELIVERIES as u64, 0));
}

/// `layer` around a handler runs one at a time; around lanes, exactly as many as there are lanes.
macro_rules! keeps_the_turn {
    ($($(#[$attribute:meta])* $name:ident: $layer:expr;)*) => { $(
        $(#[$attribute])*
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let log = Log::default();
            run(Layer::layer(&$layer, log.handler())).await;
            log.check(1);

            let log = Log::default();
            run(Layer::layer(&$layer, PartitionLayer::by_key(4).layer(log.handler()))).await;
            log.check(4);
        }
    )* };
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A delivery cannot be cloned, so it is never tried again: Retry stands inside Settle.
#[derive(Clone)]
struct Never;

impl<T, E> Policy<Delivery, T, E> for Never {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Delivery, _: &mut Result<T, E>) -> Option<Ready<()>> {
        None
    }

    fn clone_request(&mut self, _: &Delivery) -> Option<Delivery> {
        None
    }
}

/// Each request goes through one of two instances of the same stack.
fn steered<S>(inner: S) -> impl Service<Delivery, Response = (), Error = BoxError, Future: Send> + Clone
where
    S: Service<Delivery, Response = (), Error = BoxError, Future: Send> + Clone + Send + 'static,
{
    Steer::new(vec![inner.clone(), inner], |delivery: &Delivery, _: &[S]| {
        usize::from(delivery.message().payload()[0] % 2)
    })
}

keeps_the_turn! {
    no_layer: ServiceBuilder::new();
    timeout: TimeoutLayer::new(ms(60_000));
    retry: RetryLayer::new(Never);
    buffer: BufferLayer::new(100);
    concurrency_limit: ConcurrencyLimitLayer::new(100);
    global_concurrency_limit: GlobalConcurrencyLimitLayer::new(100);
    rate_limit: RateLimitLayer::new(10, ms(1));
    load_shed: LoadShedLayer::new();
    filter: FilterLayer::new(|delivery: Delivery| Ok::<_, BoxError>(delivery));
    async_filter: AsyncFilterLayer::new(async |delivery: Delivery| {
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(delivery)
    });
    spawn_ready: SpawnReadyLayer::new();
    map_request: MapRequestLayer::new(|delivery: Delivery| delivery);
    map_response: MapResponseLayer::new(|()| ());
    map_err: MapErrLayer::new(|error: BoxError| error);
    map_result: MapResultLayer::new(|result: Result<(), BoxError>| result);
    map_future: MapFutureLayer::new(|future| future);
    then: ThenLayer::new(async |result: Result<(), BoxError>| result);
    and_then: AndThenLayer::new(async |()| Ok::<_, BoxError>(()));
    some_option: option_layer(Some(TimeoutLayer::new(ms(60_000))));
    no_option: option_layer(None::<TimeoutLayer>);
    steer: layer_fn(steered);
    boxed: layer_fn(BoxService::new);
    boxed_clone: layer_fn(BoxCloneService::new);
    boxed_clone_sync: layer_fn(BoxCloneSyncService::new);
    seven_at_once: ServiceBuilder::new()
        .layer(TimeoutLayer::new(ms(60_000)))
        .layer(BufferLayer::new(100))
        .layer(RetryLayer::new(Never))
        .layer(ConcurrencyLimitLayer::new(100))
        .layer(AsyncFilterLayer::new(async |delivery: Delivery| Ok::<_, BoxError>(delivery)))
        .layer(LoadShedLayer::new())
        .layer(MapResponseLayer::new(|()| ()));
}
