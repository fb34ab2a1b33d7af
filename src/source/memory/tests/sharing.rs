use tower_mq_delivery::{Drain, Outcome};

use super::{super::*, *};
use crate::source::Source;

#[test]
fn consumers_that_wait_are_woken_in_turn_one_for_each_message() {
    let broker = Broker::new();
    let mut consumers = [(); 3].map(|()| (broker.queue("orders").consume(), counted()));
    for (consumer, (waker, _)) in &mut consumers {
        assert!(poll(consumer, waker).is_pending());
    }
    let mut woken = Vec::new();
    let mut served = Vec::new();
    for message in ["a", "b", "c", "d"] {
        publish(&broker, [message]);
        let counts = || consumers.iter().map(|(_, (_, count))| count()).collect::<Vec<_>>();
        woken.push(counts());
        let index = (served.len()) % 3;
        let (consumer, (waker, _)) = &mut consumers[index];
        served.push(next(consumer).expect("it was woken for this"));
        assert!(poll(consumer, waker).is_pending());
    }
    assert_eq!(woken, [[1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1]]);
}

#[test]
fn a_consumer_that_finds_a_message_without_being_woken_leaves_the_wake_up_to_others() {
    let broker = Broker::new();
    let [(first, first_woken), (second, second_woken)] = [counted(), counted()];
    let [mut one, mut two] = [(); 2].map(|()| broker.queue("orders").consume());
    assert!(poll(&mut one, &first).is_pending());
    assert!(poll(&mut two, &second).is_pending());
    publish(&broker, ["a"]);
    assert_eq!((first_woken(), second_woken()), (1, 0));
    // The second is polled for another reason, and takes what the first was woken for.
    let _a = next(&mut two).expect("it is there");
    publish(&broker, ["b"]);
    let _b = next(&mut one).expect("it was left for the first");
    assert!(poll(&mut one, &first).is_pending());
    publish(&broker, ["c"]);
    assert_eq!(first_woken(), 2, "the second does not wait, so it is the first's");
}

#[test]
fn a_wake_up_that_is_not_used_is_passed_on() {
    let leave: [fn(Consumer) -> Option<Consumer>; 3] = [
        |_| None,
        |mut consumer| {
            consumer.handle().pause();
            assert!(next(&mut consumer).is_none());
            Some(consumer)
        },
        |mut consumer| {
            consumer.handle().close(Drain::Finish);
            assert!(next(&mut consumer).is_none());
            Some(consumer)
        },
    ];
    for leave in leave {
        let broker = Broker::new();
        let [(first, first_woken), (second, second_woken)] = [counted(), counted()];
        let [mut one, mut two] = [(); 2].map(|()| broker.queue("orders").consume());
        assert!(poll(&mut one, &first).is_pending());
        assert!(poll(&mut two, &second).is_pending());
        publish(&broker, ["a"]);
        assert_eq!((first_woken(), second_woken()), (1, 0));
        let _kept = leave(one);
        assert_eq!(second_woken(), 1);
    }
}

#[test]
fn one_message_after_the_other_wakes_one_consumer_after_the_other() {
    let broker = Broker::new();
    let [(first, first_woken), (second, second_woken)] = [counted(), counted()];
    let [mut one, mut two] = [(); 2].map(|()| broker.queue("orders").window(1).consume());
    assert!(poll(&mut one, &first).is_pending());
    assert!(poll(&mut two, &second).is_pending());
    publish(&broker, ["a", "b"]);
    assert_eq!((first_woken(), second_woken()), (1, 1));
    let a = next(&mut one).expect("a");
    assert!(poll(&mut one, &first).is_pending(), "its window is full");
    let b = next(&mut two).expect("b");
    assert!(poll(&mut two, &second).is_pending());
    settle(b, Outcome::Release);
    assert_eq!((first_woken(), second_woken()), (1, 2), "only the second has room");
    settle(a, Outcome::Ack);
    assert_eq!(texts(&all(&mut one)), ["b"]);
}
