//! How many tries, how long, and at whose expense.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message, Outcome};

use super::{MS, Source, backoff, error};
use crate::{RetryLayer, budget::Budget};

async fn fails(_: Message) -> Result<(), BoxError> {
    Err("down".into())
}

#[tokio::test(start_paused = true)]
async fn the_first_try_counts() {
    for tries in [1, 2, 7] {
        let message = Source::new().message("a");
        let layer = RetryLayer::in_place(backoff()).attempts(tries);
        error(layer.layer(service_fn(fails)).oneshot(message.clone()).await);
        assert_eq!(message.tries(), tries);
    }
}

#[test]
#[should_panic(expected = "counts the first try")]
fn no_tries_at_all_are_refused() {
    let _ = RetryLayer::in_place(backoff()).attempts(0);
}

#[tokio::test(start_paused = true)]
async fn no_try_begins_after_the_time_is_over_and_nobody_rests_in_vain() {
    let start = tokio::time::Instant::now();
    let message = Source::new().message("a");
    let slow = service_fn(|message| async move {
        tokio::time::sleep(5 * MS).await;
        fails(message).await
    });
    // Tries begin at 0, 15 and 40 ms; the next would at 85.
    let layer = RetryLayer::in_place(backoff()).attempts(100).elapsed(84 * MS);
    error(layer.layer(slow).oneshot(message.clone()).await);
    assert_eq!((message.tries(), start.elapsed()), (3, 45 * MS));
    let message = Source::new().message("a");
    error(layer.elapsed(85 * MS).layer(slow).oneshot(message.clone()).await);
    assert_eq!(message.tries(), 4);
}

/// So many retries, and one more for each success.
#[derive(Clone)]
struct Purse(Arc<AtomicI64>);

impl Budget for Purse {
    fn deposit(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn withdraw(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_budget_is_used_up_errors_go_out_at_once_for_all_who_share_it() {
    let purse = Purse(Arc::new(AtomicI64::new(3)));
    let layer = RetryLayer::in_place(backoff()).budget(purse.clone());
    let (mut one, source) = (layer.layer(service_fn(fails)), Source::new());
    let mut other = layer.clone().layer(service_fn(fails)).clone();
    let tries = async |response: Result<Outcome, BoxError>, message: Message| {
        error(response);
        message.tries()
    };
    let message = source.message("a");
    assert_eq!(tries(one.call(message.clone()).await, message).await, 3);
    let message = source.message("b");
    assert_eq!(tries(other.call(message.clone()).await, message).await, 2, "the last of three");
    let message = source.message("c");
    assert_eq!(tries(one.call(message.clone()).await, message).await, 1);

    purse.0.store(0, Ordering::Relaxed);
    let good = service_fn(|_: Message| async { Ok::<_, BoxError>(()) });
    layer.layer(good).oneshot(source.message("d")).await.expect("good");
    let message = source.message("e");
    assert_eq!(tries(one.call(message.clone()).await, message).await, 2, "a success allows one retry");
}

#[tokio::test(start_paused = true)]
async fn a_retry_through_the_broker_is_paid_for_too() {
    let purse = Purse(Arc::new(AtomicI64::new(1)));
    let mut service = RetryLayer::requeue(backoff()).budget(purse).layer(service_fn(fails));
    let source = Source::new();
    let outcome = service.call(source.message("a")).await.expect("requeued");
    assert_eq!(outcome, Outcome::Retry { after: 10 * MS });
    assert_eq!(error(service.call(source.message("b")).await), "down");
}
