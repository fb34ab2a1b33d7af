//! What can be set, and what is refused.

use std::time::Duration;

use tower::{Layer, service_fn};
use tower_mq_delivery::{BoxError, Message, Outcome};

use super::{RETRY, SECOND};
use crate::{BreakerLayer, layer::Verdict};

async fn nothing(_: Message) -> Result<(), BoxError> {
    Ok(())
}

#[test]
#[should_panic(expected = "`BreakerLayer::minimum` of 6 is never reached by a `window` of the last 5")]
fn a_minimum_that_the_window_never_holds_is_refused_by_both_their_names() {
    let _ = BreakerLayer::new().minimum(6).window(5).layer(service_fn(nothing));
}

#[test]
fn the_default_minimum_is_no_more_than_the_window() {
    let _ = BreakerLayer::new().window(5).layer(service_fn(nothing));
    assert!(BreakerLayer::new().window(5).is_too_bad(3, 5));
    assert!(!BreakerLayer::new().is_too_bad(9, 9) && BreakerLayer::new().is_too_bad(5, 10));
}

#[test]
fn shares_and_windows_that_mean_nothing_are_refused() {
    let refused = |build: fn() -> BreakerLayer| std::panic::catch_unwind(build).is_err();
    assert!(refused(|| BreakerLayer::new().threshold(0.0)));
    assert!(refused(|| BreakerLayer::new().threshold(1.1)));
    assert!(refused(|| BreakerLayer::new().threshold(f64::NAN)));
    assert!(refused(|| BreakerLayer::new().window(0)));
    assert!(refused(|| BreakerLayer::new().window(Duration::ZERO)));
    assert!(!refused(|| BreakerLayer::new().threshold(1.0)));
}

#[test]
fn retries_and_rejects_fail_unless_the_user_says_otherwise() {
    let outcomes = [Outcome::Ack, Outcome::Release, RETRY, Outcome::reject("no")];
    let verdicts = |layer: &BreakerLayer| outcomes.each_ref().map(|outcome| layer.verdict(Some(outcome)));
    use Verdict::{Bad, Good, Neither};
    assert_eq!(verdicts(&BreakerLayer::new()), [Good, Neither, Bad, Bad]);
    let releases = BreakerLayer::new().failure_if(|outcome| matches!(outcome, Outcome::Release));
    assert_eq!(verdicts(&releases), [Good, Bad, Good, Good]);
    assert_eq!(BreakerLayer::new().verdict(None), Good);
}

#[test]
fn pauses_double_up_to_their_limit_and_jitter_leaves_at_least_half() {
    let layer = BreakerLayer::new().pause(SECOND, 5 * SECOND);
    let exact = layer.clone().without_jitter();
    assert_eq!([1, 2, 3, 4, 40, u32::MAX].map(|n| exact.rest(n)), [1, 2, 4, 5, 5, 5].map(|n| n * SECOND));
    let drawn: Vec<_> = (0..1_000).map(|_| layer.rest(2)).collect();
    assert!(drawn.iter().all(|rest| (SECOND..=2 * SECOND).contains(rest)));
    let (least, most) = (drawn.iter().min(), drawn.iter().max());
    assert!(least < Some(&(SECOND * 11 / 10)) && most > Some(&(SECOND * 19 / 10)), "{least:?} {most:?}");
}
