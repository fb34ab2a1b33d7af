use tower_mq_delivery::Outcome;

use crate::source::ledger::Ledger;

#[test]
fn a_token_is_used_once() {
    let mut ledger = Ledger::new(1);
    let first = ledger.take('a').unwrap();
    assert!(ledger.decide(first, Outcome::Ack));
    assert!(!ledger.decide(first, Outcome::Release));
    assert_eq!(ledger.pop_decided(), Some(('a', Outcome::Ack)));
    assert!(!ledger.decide(first, Outcome::Ack));
    let second = ledger.take('b').unwrap();
    assert!(!ledger.decide(first, Outcome::Ack), "the same place, another delivery");
    assert!(ledger.decide(second, Outcome::Ack));
}

#[test]
fn tokens_of_nobody_and_of_another_ledger_are_refused() {
    let (mut one, mut other) = (Ledger::new(4), Ledger::new(4));
    for _ in 0..4 {
        let foreign = other.take(()).unwrap();
        one.take(());
        assert!(!one.decide(foreign, Outcome::Ack));
    }
    assert!(!one.decide(u64::MAX, Outcome::Ack));
    assert_eq!((one.open(), one.decided()), (4, 0));
}

#[test]
fn a_full_window_takes_nothing_until_the_broker_was_told() {
    let mut ledger = Ledger::new(2);
    let first = ledger.take(1).unwrap();
    ledger.take(2).unwrap();
    assert_eq!(ledger.take(3), None);
    ledger.decide(first, Outcome::Ack);
    assert_eq!(ledger.take(3), None, "decided, and not told");
    assert_eq!((ledger.open(), ledger.decided(), ledger.room()), (1, 1, 0));
    ledger.pop_settled().unwrap();
    assert_eq!((ledger.open(), ledger.decided(), ledger.room()), (1, 0, 1));
    assert!(ledger.take(3).is_some());
    assert_eq!(Ledger::new(0).take(()), None);
}

#[test]
fn a_stuck_delivery_costs_one_place_while_a_million_pass() {
    let mut ledger = Ledger::new(3);
    let stuck = ledger.take(0).unwrap();
    for number in 1..=1_000_000 {
        let token = ledger.take(number).unwrap();
        assert!(ledger.decide(token, Outcome::Ack));
        assert_eq!(ledger.pop_settled(), None);
        assert_eq!(ledger.pop_decided(), Some((number, Outcome::Ack)));
        assert_eq!((ledger.open(), ledger.room()), (1, 2));
    }
    assert_eq!((ledger.places.len(), ledger.free.capacity(), ledger.sorting.capacity()), (3, 3, 3));
    assert!(ledger.decide(stuck, Outcome::Release));
    assert_eq!(ledger.pop_settled(), Some((0, Outcome::Release)));
}

#[test]
fn the_settled_prefix_ends_before_the_first_undecided() {
    let mut ledger = Ledger::new(4);
    let tokens: Vec<_> = (0..4).map(|number| ledger.take(number).unwrap()).collect();
    for decided in [3, 1, 0] {
        ledger.decide(tokens[decided], Outcome::Ack);
    }
    assert_eq!(ledger.first_open(), Some(&2));
    assert_eq!(ledger.pop_settled(), Some((0, Outcome::Ack)));
    assert_eq!(ledger.pop_settled(), Some((1, Outcome::Ack)));
    assert_eq!(ledger.pop_settled(), None);
    assert_eq!(ledger.pop_acked(), Some((3, Outcome::Ack)));
    ledger.decide(tokens[2], Outcome::Release);
    assert_eq!(ledger.first_open(), None);
    assert_eq!(ledger.pop_settled(), Some((2, Outcome::Release)));
}

#[test]
fn what_is_decided_comes_out_in_the_order_taken() {
    let mut ledger = Ledger::new(5);
    let tokens: Vec<_> = (0..5).map(|number| ledger.take(number).unwrap()).collect();
    for decided in [4, 0, 3, 1] {
        let outcome = if decided % 2 == 0 { Outcome::Ack } else { Outcome::Release };
        ledger.decide(tokens[decided], outcome);
    }
    let order: Vec<_> = std::iter::from_fn(|| ledger.pop_decided()).map(|(number, _)| number).collect();
    assert_eq!(order, [0, 1, 3, 4]);
}

#[test]
fn a_delivery_that_runs_again_keeps_its_place_and_loses_its_old_name() {
    let mut ledger = Ledger::new(2);
    let old = ledger.take('a').unwrap();
    ledger.take('b').unwrap();
    let new = ledger.again(old).unwrap();
    assert_eq!(ledger.again(old), None);
    assert!(!ledger.decide(old, Outcome::Ack));
    assert_eq!(ledger.first_open(), Some(&'a'));
    assert_eq!(ledger.get(new), Some(&'a'));
    assert!(ledger.decide(new, Outcome::Ack));
    assert_eq!(ledger.pop_settled(), Some(('a', Outcome::Ack)));
}
