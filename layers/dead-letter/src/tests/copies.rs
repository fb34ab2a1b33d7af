//! What is copied, and how often.

use std::time::{SystemTime, UNIX_EPOCH};

use tower_mq_delivery::{ErrorPolicy, Failure, Turn, Value};
use tower_mq_testing::turn;

use super::*;
use crate::{
    DEAD_LETTER_ATTEMPTS, DEAD_LETTER_FIRST_FAILURE, DEAD_LETTER_QUEUE, DEAD_LETTER_REASON, DEAD_LETTER_TRIES,
};

fn header<'a>(copy: &'a Publication, name: &str) -> Option<&'a Value<'static>> {
    copy.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value)
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_copied_once_and_acked_when_that_is_confirmed() {
    let (target, source) = (Target::default(), Source::new());
    let (turn, probe) = turn();
    let mut message = source.message();
    message.again();
    let _none = message.set_turn(turn);
    let before = SystemTime::now();
    let stack = layer(&target).layer_fn(rejects);
    assert_eq!(stack.oneshot(message.clone()).await.expect("decided"), Outcome::Ack);
    assert_eq!((target.copies(), target.tries(), source.events()), (1, 1, vec!["dead"]));

    let copy = target.0.stored.lock().pop().expect("there is one");
    assert_eq!((copy.message.payload(), copy.message.key()), (message.payload(), message.key()));
    assert_eq!((&copy.destination, copy.headers.len()), (&None, 5));
    assert_eq!(header(&copy, DEAD_LETTER_REASON), Some(&"no such order".into()));
    assert_eq!(header(&copy, DEAD_LETTER_ATTEMPTS), Some(&Value::U32(1)));
    assert_eq!(header(&copy, DEAD_LETTER_TRIES), Some(&Value::U32(2)));
    assert_eq!(header(&copy, DEAD_LETTER_QUEUE), Some(&"orders".into()));
    let Some(Value::Time(first)) = header(&copy, DEAD_LETTER_FIRST_FAILURE) else { panic!("no timestamp") };
    // The message keeps milliseconds.
    assert!(*first + Duration::from_millis(1) >= before && *first <= SystemTime::now());
    assert_eq!(message.first_failure(), Some(*first), "it is known to the next delivery, too");
    copy.message.turn().pass();
    assert!(!probe.is_passed(), "a publisher must not pass the turn of the delivery");
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_is_that_of_the_first_attempt_and_unknown_attempts_are_guessed() {
    let (target, source) = (Target::default(), Source::new());
    let message = Message::builder("").redelivered(true).generation(source.generation.clone()).build();
    message.failed();
    let first = message.first_failure().expect("it has failed");
    std::thread::sleep(Duration::from_millis(2));
    layer(&target).layer_fn(rejects).oneshot(message).await.expect("decided");
    let copy = target.0.stored.lock().pop().expect("there is one");
    assert_eq!(header(&copy, DEAD_LETTER_FIRST_FAILURE), Some(&Value::Time(first)));
    assert_eq!(header(&copy, DEAD_LETTER_ATTEMPTS), Some(&Value::U32(2)));
    assert!(first > UNIX_EPOCH);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_goes_where_its_message_says() {
    let (target, source) = (Target::new([Refuse]), Source::new());
    let layer = layer(&target).destination(|message| format!("{}.dead", message.destination()));
    assert_eq!(rejected(layer, &source).await, Outcome::Ack);
    assert_eq!(target.0.stored.lock()[0].destination.as_deref(), Some("orders.dead"));
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_panics_loses_nothing() {
    let (target, source) = (Target::default(), Source::new());
    let layer = layer(&target).destination(|_| -> &str { panic!("no tenant") }).attempts(2);
    assert_eq!(rejected(layer, &source).await, Outcome::Release);
    assert_eq!((target.tries(), source.events()), (0, vec!["panicked", "again", "panicked", "given up"]));
}

#[tokio::test(start_paused = true)]
async fn whatever_the_target_does_a_message_is_acked_after_a_confirmed_copy_and_has_one_duplicate_at_most() {
    let (lost, stored) = (Lose { stored: false }, Lose { stored: true });
    // The script, then: outcome, copies, tries.
    let cases: [(&[Act], Outcome, usize, usize); 19] = [
        // Missing, full: it is certain that nothing is stored.
        (&[Refuse], Outcome::Ack, 1, 2),
        (&[Refuse; 7], Outcome::Ack, 1, 8),
        (&[Refuse; 8], Outcome::Release, 0, 8),
        // Slow.
        (&[NotReady], Outcome::Ack, 1, 2),
        (&[NotReady; 8], Outcome::Release, 0, 8),
        (&[Hang { stored: true }], Outcome::Ack, 2, 2),
        (&[Hang { stored: false }], Outcome::Ack, 1, 2),
        (&[Hang { stored: true }; 2], Outcome::Release, 2, 2),
        // Dying before the confirmation.
        (&[lost], Outcome::Ack, 1, 2),
        (&[stored], Outcome::Ack, 2, 2),
        (&[lost, lost], Outcome::Release, 0, 2),
        (&[stored, stored], Outcome::Release, 2, 2),
        (&[Refuse, stored, Refuse, Refuse], Outcome::Ack, 2, 5),
        (&[NeverReady, stored, NeverReady], Outcome::Ack, 2, 4),
        // Broken.
        (&[PanicInReady, PanicInReady], Outcome::Ack, 1, 3),
        (&[PanicInCall], Outcome::Ack, 1, 2),
        (&[PanicInPoll { stored: true }], Outcome::Ack, 2, 2),
        (&[PanicInDrop], Outcome::Ack, 1, 1),
        (&[PanicInEnd], Outcome::Ack, 1, 1),
    ];
    for (script, outcome, copies, tries) in cases {
        let (target, source) = (Target::new(script.iter().copied()), Source::new());
        assert_eq!(rejected(layer(&target), &source).await, outcome, "{script:?}");
        assert_eq!((target.copies(), target.tries(), target.open()), (copies, tries, 0), "{script:?}");
        let events: Vec<_> = source.events().into_iter().filter(|event| *event != "panicked").collect();
        let last = if outcome == Outcome::Ack { "dead" } else { "given up" };
        assert_eq!(events.last(), Some(&last), "{script:?}");
        assert_eq!(events.len(), tries, "{script:?}: each try is reported once");
        assert!(events[..tries - 1].iter().all(|event| *event == "again"), "{script:?}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn how_many_duplicates_there_may_be_is_the_users_choice() {
    let lost = Lose { stored: true };
    for (most, expected) in [(0, (Outcome::Release, 1)), (2, (Outcome::Release, 3)), (3, (Outcome::Ack, 4))] {
        let (target, source) = (Target::new([lost; 3]), Source::new());
        let outcome = rejected(layer(&target).duplicates(most), &source).await;
        assert_eq!((outcome, target.copies()), expected, "{most}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_try_publishes_the_same() {
    let (target, source) = (Target::new([Lose { stored: true }]), Source::new());
    rejected(layer(&target), &source).await;
    let stored = target.0.stored.lock();
    assert_eq!(stored[0].headers, stored[1].headers);
    assert_eq!(stored[0].message.turn().owner(), Turn::detached().owner());
}

#[tokio::test(start_paused = true)]
async fn a_failed_try_is_followed_by_a_growing_pause_and_so_is_the_last_one() {
    let (target, source) = (Target::new([Refuse; 8]), Source::new());
    let start = Instant::now();
    rejected(layer(&target).backoff(SECOND, 4 * SECOND).attempts(4), &source).await;
    let mut times = target.times();
    times.push(Instant::now());
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!((times[0], pauses.len()), (start, 4));
    for (pause, most) in pauses.into_iter().zip([1, 2, 4, 4]) {
        // The timer has a resolution of a millisecond.
        let most = most * SECOND;
        assert!(pause >= most / 2 && pause <= most + Duration::from_millis(1), "{pause:?} of {most:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_ends_when_its_time_is_over_ready_or_not() {
    for script in [[NotReady], [Hang { stored: false }]] {
        let (target, source) = (Target::new(script), Source::new());
        let layer = layer(&target).timeout(3 * SECOND).backoff(Duration::ZERO, Duration::ZERO);
        assert_eq!(rejected(layer, &source).await, Outcome::Ack);
        let times = target.times();
        let took = times[1] - times[0];
        assert!(took >= 3 * SECOND && took < 4 * SECOND, "{script:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_decided_to_reject_is_copied_with_its_text() {
    let (target, source) = (Target::default(), Source::new());
    let refuses = |_: Message| async { Err::<(), _>(Failure::reject("no such order")) };
    let stack = layer(&target).on_error(ErrorPolicy::retry(9)).layer_fn(refuses);
    assert_eq!(stack.oneshot(source.message()).await.expect("decided"), Outcome::Ack);
    assert_eq!(header(&target.0.stored.lock()[0], DEAD_LETTER_REASON), Some(&"no such order".into()));
}
