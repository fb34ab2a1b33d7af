//! The store in memory is bounded in time and in number, and keeps nothing for nobody.

use tokio_test::{assert_pending, assert_ready, task};

use super::*;

fn id(n: u32) -> Id {
    Id::of(n.to_be_bytes())
}

fn run(store: &MemoryStore, n: u32) -> bool {
    match store.begin_now(id(n)) {
        Some(Begun::New(lease)) => {
            drop(store.finish(id(n), lease));
            true
        }
        _ => false,
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_is_remembered_for_its_time_and_no_longer() {
    let store = MemoryStore::new().ttl(Duration::from_secs(10));
    assert!(run(&store, 1));
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(run(&store, 2));
    assert!(!run(&store, 1));
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(store.len(), 1, "a duplicate prolongs nothing");
    assert!(run(&store, 1) && !run(&store, 2));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(store.is_empty());
    assert_eq!(store.0.shelf.lock().ids.done(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_counts_from_the_end_of_the_handler() {
    let store = MemoryStore::new().ttl(Duration::from_secs(10));
    let Some(Begun::New(lease)) = store.begin_now(id(1)) else { panic!("it is new") };
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(store.begin_now(id(1)), Some(Begun::Running), "what runs is not forgotten");
    drop(store.finish(id(1), lease));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(store.begin_now(id(1)), Some(Begun::Done));
}

#[test]
fn the_oldest_that_are_done_make_room_and_what_runs_never_does() {
    let store = MemoryStore::new().capacity(3);
    let Some(Begun::New(lease)) = store.begin_now(id(0)) else { panic!("it is new") };
    assert!((1..=5).all(|n| run(&store, n)));
    assert_eq!(store.len(), 4, "three that are done, and one that runs");
    assert_eq!(store.begin_now(id(0)), Some(Begun::Running));
    assert!(!run(&store, 3) && !run(&store, 4) && !run(&store, 5));
    drop(store.finish(id(0), lease));
    assert!(!run(&store, 0) && !run(&store, 4));
    assert!(run(&store, 1), "it was forgotten");
    assert_eq!(store.len(), 3);
}

#[test]
fn a_full_store_grows_no_more() {
    let store = MemoryStore::new().capacity(100);
    (0..100_000).for_each(|n| assert!(run(&store, n)));
    let shelf = store.0.shelf.lock();
    assert_eq!((shelf.ids.len(), shelf.ids.done(), shelf.waiting.capacity()), (100, 100, 0));
    assert!(shelf.ids.capacity() <= 400);
}

#[test]
fn a_lease_of_another_store_ends_nothing() {
    let [ours, theirs] = [(); 2].map(|()| MemoryStore::new());
    let lease = |store: &MemoryStore, n| match store.begin_now(id(n)) {
        Some(Begun::New(lease)) => lease,
        _ => panic!("it is new"),
    };
    let (first, second) = (lease(&ours, 1), lease(&ours, 2));
    let (other, same) = (lease(&theirs, 3), lease(&theirs, 2));
    drop(ours.finish(id(3), other));
    drop(ours.finish(id(2), second));
    ours.forget(id(2), same);
    assert_eq!((ours.begin_now(id(1)), ours.begin_now(id(2))), (Some(Begun::Running), Some(Begun::Done)));
    drop(ours.finish(id(1), first));
    assert_eq!(ours.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_places_of_ids_that_fell_out_of_their_time_are_taken_again() {
    let store = MemoryStore::new().ttl(Duration::from_secs(10));
    for round in 0..10 {
        assert!((0..100).all(|n| run(&store, 100 * round + n)));
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    assert!(store.is_empty() && store.0.shelf.lock().ids.capacity() <= 256);
}

#[test]
#[should_panic(expected = "`capacity` must be 1 or more")]
fn a_store_without_room_is_refused() {
    let _store = MemoryStore::new().capacity(0);
}

#[test]
fn who_waits_is_woken_by_both_ends_and_leaves_nothing_when_dropped() {
    let store = MemoryStore::new();
    let waiting = || store.0.shelf.lock().waiting.values().map(Vec::len).sum::<usize>();
    for finishes in [true, false] {
        let id = id(u32::from(finishes));
        let Some(Begun::New(lease)) = store.begin_now(id) else { panic!("it is new") };
        let [mut one, mut two, mut three] = [0; 3].map(|round| task::spawn(store.wait(id, round)));
        assert_pending!(one.poll());
        assert_pending!(one.poll());
        assert_pending!(two.poll());
        assert_pending!(three.poll());
        assert_eq!(waiting(), 3, "who is polled again waits once");
        drop(two);
        assert_eq!(waiting(), 2);
        match finishes {
            true => drop(store.finish(id, lease)),
            false => store.forget(id, lease),
        }
        assert!(one.is_woken() && three.is_woken());
        assert_eq!(waiting(), 0);
        assert_ready!(one.poll());
        // Somebody else was quicker.
        if let Some(Begun::New(lease)) = store.begin_now(id) {
            assert_pending!(three.poll());
            assert_eq!(waiting(), 1);
            store.forget(id, lease);
        }
        drop((one, three));
        assert_eq!(waiting(), 0);
    }
    assert!(store.0.shelf.lock().waiting.is_empty());
}

#[test]
fn the_last_waker_is_the_one_that_is_woken() {
    let store = MemoryStore::new();
    let Some(Begun::New(lease)) = store.begin_now(id(1)) else { panic!("it is new") };
    let mut waits = Box::pin(store.wait(id(1), 0));
    let mut first = task::spawn(std::future::pending::<()>());
    let _ = first.enter(|cx, _| waits.as_mut().poll(cx));
    let mut second = task::spawn(std::future::pending::<()>());
    let _ = second.enter(|cx, _| waits.as_mut().poll(cx));
    store.forget(id(1), lease);
    assert!(!first.is_woken() && second.is_woken());
    assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_ready());
}
