//! Handlers of batches.

use std::sync::Arc;

use parking_lot::Mutex;
use tower_mq_delivery::{Batch, ClosedBy, Message, Outcome, Outcomes};

use super::{answer, reject};
use crate::handler;

fn batch(payloads: &[&'static [u8]]) -> Batch<Message> {
    Batch::new(payloads.iter().map(|p| Message::new(*p)).collect(), ClosedBy::Wait)
}

/// What is decided about each member: the outcome, or the reason of the reject.
fn names(outcomes: &Outcomes) -> Vec<&str> {
    let Outcomes::Each(results) = outcomes else { panic!("one for all") };
    let mut names = Vec::new();
    for result in results {
        names.push(match result {
            Ok(outcome) => outcome.name(),
            Err(error) => reject(error),
        });
    }
    names
}

#[tokio::test]
async fn a_batch_handler_is_given_all_members_and_why_the_batch_was_closed() {
    async fn all(batch: Batch<String>) -> Outcome {
        assert_eq!((&batch[..], batch.closed_by()), (&["a".to_owned(), "b".to_owned()][..], ClosedBy::Wait));
        Outcome::Release
    }
    let outcomes = answer(handler(all), batch(&[b"a", b"b"])).await.expect("handled");
    assert!(matches!(outcomes, Outcomes::All(Outcome::Release)));
}

#[tokio::test]
async fn members_that_cannot_be_decoded_are_rejected_singly() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let theirs = seen.clone();
    let service = handler(move |batch: Batch<String>| {
        theirs.lock().extend(batch.into_iter());
        async { vec![Outcome::Release, Outcome::Ack] }
    });
    let outcomes = answer(service, batch(&[b"\xff", b"a", b"\xff", b"b"])).await.expect("handled");
    assert_eq!(*seen.lock(), ["a", "b"]);
    let names = names(&outcomes);
    assert_eq!((names[1], names[3]), ("release", "ack"));
    assert!(names[0].starts_with("`String` cannot") && names[2].starts_with("`String` cannot"), "{names:?}");
}

#[tokio::test]
async fn the_handler_is_not_called_when_no_member_can_be_decoded() {
    let called = Arc::new(Mutex::new(false));
    let theirs = called.clone();
    let service = handler(move |_: Batch<String>| {
        *theirs.lock() = true;
        async {}
    });
    let outcomes = answer(service, batch(&[b"\xff", b"\xff"])).await.expect("answered");
    assert!(!*called.lock());
    assert!(names(&outcomes).iter().all(|name| name.starts_with("`String` cannot")));
}

#[tokio::test]
async fn members_keep_their_own_rejection_when_the_others_fail_together() {
    async fn fails(_: Batch<String>) -> Result<(), &'static str> {
        Err("down")
    }
    let outcomes = answer(handler(fails), batch(&[b"\xff", b"a"])).await.expect("answered");
    let Outcomes::Each(results) = outcomes else { panic!("one for all") };
    let [Err(rejected), Err(failed)] = &results[..] else { panic!("two errors") };
    assert!(reject(rejected).starts_with("`String` cannot"));
    assert_eq!(failed.to_string(), "down");
}

#[tokio::test]
async fn messages_are_members_too() {
    async fn all(batch: Batch<Message>) -> Vec<Result<(), String>> {
        batch.iter().map(|_| Ok(())).collect()
    }
    let outcomes = answer(handler(all), batch(&[b"a", b"b"])).await.expect("handled");
    assert_eq!(names(&outcomes), ["ack", "ack"]);
}
