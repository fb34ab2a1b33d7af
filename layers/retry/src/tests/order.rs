//! The order of the key, for random failures under every partition that keeps it, against a small model.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use proptest::prelude::*;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{BoxError, Message};
use tower_mq_partition::PartitionLayer;
use tower_mq_testing::Recorder;

use super::{MS, Source, rejected};
use crate::{Backoff, RetryLayer};

const TRIES: u32 = 4;

#[derive(Clone, Debug)]
struct Plan {
    key: u8,
    /// So many tries fail; the next one is good, or decides.
    fails: u32,
    takes: u64,
    decides: bool,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan = (0..4u8, prop_oneof![3 => Just(0), 3 => 1..=TRIES], 0..20u64, any::<bool>());
    let plan = plan.prop_map(|(key, fails, takes, decides)| Plan { key, fails, takes, decides });
    proptest::collection::vec(plan, 1..40)
}

async fn run(layer: RetryLayer, partition: PartitionLayer<Message>, plans: Vec<Plan>) {
    let (recorder, source, script) = (Recorder::new(), Source::new(), plans.clone());
    let handler = service_fn(move |message: Message| {
        let plan = script[usize::from(message.payload()[0])].clone();
        async move {
            tokio::time::sleep(plan.takes as u32 * MS).await;
            match (message.tries() <= plan.fails, plan.decides) {
                (true, _) => Err(BoxError::from("down")),
                (false, true) => Err(rejected()),
                (false, false) => Ok(()),
            }
        }
    });
    let mut service = partition.layer(layer.layer(recorder.layer(handler)));
    let (mut responses, mut expected) = (Vec::new(), BTreeMap::<u8, Vec<Vec<u8>>>::new());
    for (n, plan) in plans.iter().enumerate() {
        let n = u8::try_from(n).expect("few");
        let message =
            Message::builder(vec![n]).key(vec![plan.key]).generation(source.generation.clone()).build();
        responses.push(service.ready().await.expect("ready").call(message));
        let tries = (plan.fails + 1).min(TRIES) as usize;
        expected.entry(plan.key).or_default().extend(std::iter::repeat_n(vec![n], tries));
    }
    for (answer, plan) in join_all(responses).await.into_iter().zip(&plans) {
        assert_eq!(answer.is_ok(), plan.fails < TRIES && !plan.decides);
    }
    for (key, expected) in expected {
        assert_eq!(recorder.of([key]), expected, "key {key}: all tries of one, then all of the next");
    }
    assert_eq!(recorder.peak_of_a_key(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn retries_in_place_and_parked_keep_the_order_of_the_key(
        plans in plans(),
        workers in 1..4usize,
        park in any::<bool>(),
        per_key in any::<bool>(),
        inline in any::<bool>(),
    ) {
        let backoff = Backoff::exponential(Duration::from_millis(5), Duration::from_millis(50));
        let layer = if park { RetryLayer::park(backoff) } else { RetryLayer::in_place(backoff) };
        let partition =
            if per_key { PartitionLayer::per_key(workers) } else { PartitionLayer::by_key(workers) };
        let partition = if inline { partition.inline() } else { partition };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run(layer.attempts(TRIES), partition, plans));
    }
}
