//! Errors are judged here, once, and the rest is left alone.

use std::sync::atomic::AtomicU32;

use tower_mq_delivery::{ErrorPolicy, Failure};

use super::*;

async fn fails(_: Message) -> Result<(), BoxError> {
    Err("no such order".into())
}

#[tokio::test(start_paused = true)]
async fn what_is_not_rejected_passes_and_nothing_is_published() {
    let outcomes = [Outcome::Ack, Outcome::Release, Outcome::Retry { after: SECOND }];
    for outcome in outcomes {
        let (target, source, answer) = (Target::default(), Source::new(), outcome.clone());
        let stack = layer(&target).layer_fn(move |_: Message| {
            let answer = answer.clone();
            async { Ok::<_, BoxError>(answer) }
        });
        assert_eq!(stack.oneshot(source.message()).await.expect("decided"), outcome);
        assert_eq!((target.tries(), source.events()), (0, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_the_message_judges_unless_the_layer_has_its_own() {
    let (target, source) = (Target::default(), Source::new());
    let judged = Arc::new(AtomicU32::new(0));
    let count = judged.clone();
    let mut message = source.message();
    message.set_policy(ErrorPolicy::from_fn(move |_, error| {
        count.fetch_add(1, Ordering::Relaxed);
        Outcome::reject(error.to_string())
    }));
    let outcome = layer(&target).layer_fn(fails).oneshot(message.clone()).await.expect("decided");
    assert_eq!((outcome, target.copies(), judged.load(Ordering::Relaxed)), (Outcome::Ack, 1, 1));

    let own = ErrorPolicy::from_fn(|_, _| Outcome::Release);
    let outcome = layer(&target).on_error(own).layer_fn(fails).oneshot(message).await.expect("decided");
    assert_eq!((outcome, target.copies(), judged.load(Ordering::Relaxed)), (Outcome::Release, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_not_final_is_an_outcome_outside() {
    let (target, source) = (Target::default(), Source::new());
    let message = source.message();
    let outcome = layer(&target).layer_fn(fails).oneshot(message.clone()).await.expect("decided");
    assert_eq!(outcome, Outcome::Retry { after: SECOND }, "the default policy");
    assert!(message.first_failure().is_some());
    let gives_back = |_: Message| async { Err::<(), _>(Failure::release("not mine")) };
    let outcome = layer(&target).layer_fn(gives_back).oneshot(source.message()).await.expect("decided");
    assert_eq!((outcome, target.tries()), (Outcome::Release, 0));
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_is_not_ready_holds_up_no_good_message() {
    let (target, source) = (Target::new([NotReady]), Source::new());
    let mut service = layer(&target).layer_fn(|_: Message| async { Ok::<_, BoxError>(()) });
    for _ in 0..3 {
        let outcome = service.ready().await.expect("ready").call(source.message()).await;
        assert_eq!(outcome.expect("decided"), Outcome::Ack);
    }
    assert_eq!(target.tries(), 0, "it was not even asked");
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_will_never_be_ready_is_an_error() {
    let (inner, mut handle) = tower_test::mock::pair::<Message, Outcome>();
    handle.send_error("gone");
    let mut service = tower::Layer::layer(&layer(&Target::default()), inner);
    assert_eq!(service.ready().await.map(drop).expect_err("it is gone").to_string(), "gone");
}
