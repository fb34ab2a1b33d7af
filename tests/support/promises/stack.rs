//! The documented stack, with everything in it.

use std::time::Duration;

use tower::{ServiceBuilder, limit::ConcurrencyLimitLayer, timeout::TimeoutLayer, util::BoxService};
use tower_mq::{
    Batch, BatchLayer, BoxError, BreakerLayer, DeadLetterLayer, DedupLayer, Delivery, ErrorPolicy,
    MetricsLayer, SettleLayer, Settled, TraceLayer, dedup::MemoryStore, handler,
};

use super::{
    Letters, Plan, World,
    act::{Order, handle, handle_all},
};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn stack(
    plan: &Plan,
    world: &World,
    store: &MemoryStore,
    letters: Letters,
) -> BoxService<Delivery, Settled, BoxError> {
    let dead = DeadLetterLayer::new(letters).attempts(3).backoff(ms(10), ms(40)).timeout(plan.copy_timeout);
    let outside = ServiceBuilder::new()
        .layer(MetricsLayer::delivery())
        .layer(TraceLayer::new())
        .layer(BreakerLayer::new().minimum(4).window(8).pause(ms(20), ms(200)))
        .layer(plan.partition())
        .layer(SettleLayer::new().on_error(ErrorPolicy::retry_within(3, ms(20), ms(100))))
        .layer(DedupLayer::new(store.clone()))
        .layer(dead);
    let (limit, timeout) = (ConcurrencyLimitLayer::new(plan.limit), TimeoutLayer::new(ms(300)));
    let world = world.clone();
    match plan.batch {
        None => BoxService::new(
            outside
                .layer(plan.retry())
                .layer(limit)
                .layer(timeout)
                .layer(MetricsLayer::process())
                .service(handler(move |order: Order| handle(world.clone(), order))),
        ),
        Some((size, wait)) => {
            let batches = BatchLayer::new(size);
            BoxService::new(
                outside
                    .layer(wait.map_or(batches.clone().ready(), |wait| batches.wait(ms(wait))))
                    .layer(plan.retry())
                    .layer(limit)
                    .layer(timeout)
                    .layer(MetricsLayer::process())
                    .service(handler(move |orders: Batch<Order>| handle_all(world.clone(), orders))),
            )
        }
    }
}
