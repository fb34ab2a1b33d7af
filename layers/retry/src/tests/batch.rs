//! Batches that fail in part.

use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::Service;
use tower_mq_delivery::{Batch, BoxError, Drain, Generation, Message, Outcome, Outcomes};
use tower_mq_testing::Gate;

use super::{MS, Source, backoff, gated, hourly, rejected, texts};
use crate::RetryLayer;

fn down() -> BoxError {
    "down".into()
}

fn batch(source: &Source, names: &[&str]) -> Batch<Message> {
    names.iter().map(|name| source.message(name)).collect::<Vec<_>>().into()
}

/// The next call has these members, and gets this answer.
async fn answer(gate: &Gate<Batch<Message>>, members: &[&str], results: Vec<Result<Outcome, BoxError>>) {
    let call = gate.next().await;
    assert_eq!(texts(&call), members);
    call.answer(Outcomes::Each(results));
}

fn told(outcomes: Outcomes) -> Vec<String> {
    let Outcomes::Each(results) = outcomes else { panic!("one for each") };
    let name = |result: &Result<Outcome, BoxError>| match result {
        Ok(outcome) => outcome.name().to_owned(),
        Err(error) => error.to_string(),
    };
    results.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn only_the_failed_members_are_tried_again_and_what_was_decided_about_the_others_stands() {
    let (source, (mut service, gate)) = (Source::new(), gated(&RetryLayer::in_place(backoff())));
    let batch = batch(&source, &["a", "b", "c", "d", "e"]);
    let members = batch.clone();
    let mut response = task::spawn(service.call(batch));
    assert_pending!(response.poll());
    let first = vec![Err(down()), Ok(Outcome::Ack), Err(rejected()), Err(down()), Ok(Outcome::Release)];
    answer(&gate, &["a", "b", "c", "d", "e"], first).await;
    assert_pending!(response.poll());
    tokio::time::advance(11 * MS).await;
    assert_pending!(response.poll());
    answer(&gate, &["a", "d"], vec![Ok(Outcome::Ack), Err(down())]).await;
    assert_pending!(response.poll());
    tokio::time::advance(21 * MS).await;
    assert_pending!(response.poll());
    answer(&gate, &["d"], vec![Err("for good".into())]).await;
    let outcomes = assert_ready_ok!(response.poll());
    assert_eq!(told(outcomes), ["ack", "ack", "never", "for good", "release"]);
    assert_eq!(members.iter().map(Message::tries).collect::<Vec<_>>(), [2, 1, 1, 3, 1]);
    let heard = ["a retried after 10ms", "d retried after 10ms", "d retried after 20ms"];
    assert_eq!(source.heard(), heard);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_as_a_whole_is_tried_again_as_a_whole() {
    let (source, (mut service, gate)) = (Source::new(), gated(&RetryLayer::in_place(backoff()).attempts(2)));
    let mut response = task::spawn(service.call(batch(&source, &["a", "b"])));
    assert_pending!(response.poll());
    for ms in [11, 0] {
        let call = gate.next().await;
        assert_eq!(texts(&call), ["a", "b"]);
        call.fail("down");
        if ms > 0 {
            assert_pending!(response.poll());
            tokio::time::advance(ms * MS).await;
            assert_pending!(response.poll());
        }
    }
    assert_eq!(response.await.expect_err("as it was").to_string(), "down");
}

#[tokio::test(start_paused = true)]
async fn a_drain_releases_only_the_members_that_failed() {
    for draining_before in [false, true] {
        let (source, (mut service, gate)) = (Source::new(), gated(&RetryLayer::park(hourly())));
        let mut response = task::spawn(service.call(batch(&source, &["a", "b", "c"])));
        assert_pending!(response.poll());
        if draining_before {
            source.origin().start_drain(Drain::Release);
        }
        answer(&gate, &["a", "b", "c"], vec![Ok(Outcome::Ack), Err(down()), Err(rejected())]).await;
        if !draining_before {
            assert_pending!(response.poll());
            source.origin().start_drain(Drain::Release);
            assert!(response.is_woken());
        }
        assert_eq!(told(assert_ready_ok!(response.poll())), ["ack", "release", "never"]);
    }
}

#[tokio::test(start_paused = true)]
async fn members_whose_generation_has_ended_are_released_and_the_others_are_tried_again() {
    let (source, (mut service, gate)) = (Source::new(), gated(&RetryLayer::in_place(backoff())));
    let other = Generation::numbered(source.generation.origin().clone(), 2);
    let live = Message::builder("b").generation(other.clone()).build();
    let mut response =
        task::spawn(service.call(Batch::from(vec![source.message("a"), live, source.message("c")])));
    assert_pending!(response.poll());
    answer(&gate, &["a", "b", "c"], vec![Err(down()), Err(down()), Ok(Outcome::Ack)]).await;
    assert_pending!(response.poll());
    source.generation.end();
    assert_pending!(response.poll(), "not all of them are gone");
    tokio::time::advance(11 * MS).await;
    assert_pending!(response.poll());
    let call = gate.next().await;
    assert_eq!(texts(&call), ["b"]);
    call.fail("down");
    assert_pending!(response.poll());
    other.end();
    assert!(response.is_woken());
    let Outcomes::Each(results) = assert_ready_ok!(response.poll()) else { panic!("one for each") };
    let gone = results[0].as_ref().expect_err("decided by its error");
    assert_eq!(tower_mq_delivery::Failure::find(&**gone), Some(&Outcome::Release));
    assert!(matches!(results[1..], [Ok(Outcome::Release), Ok(Outcome::Ack)]));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_ready_again_fails_only_the_members_that_are_not_decided() {
    let (mut service, mut handle) =
        tower_test::mock::spawn_layer::<Batch<Message>, Outcomes, _>(RetryLayer::in_place(backoff()));
    assert!(service.poll_ready().is_ready());
    let mut response = task::spawn(service.call(batch(&Source::new(), &["a", "b"])));
    assert_pending!(response.poll());
    let (_, first) = handle.next_request().await.expect("called");
    first.send_response(Outcomes::Each(vec![Ok(Outcome::Ack), Err(down())]));
    assert_pending!(response.poll());
    handle.send_error("gone");
    assert_eq!(told(response.await.expect("one for each")), ["ack", "gone"]);
}
