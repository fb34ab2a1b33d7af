//! What every store must do: [`check`].

use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::timeout;

use crate::{Begun, Id, Store};

/// Longer than any store may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Panics if the store breaks its promises; the message tells which.
///
/// It uses ids of its own, so the store need not be empty. It must remember for a minute or more.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// tower_mq_dedup::contract::check(tower_mq_dedup::MemoryStore::new()).await;
/// # }
/// ```
///
/// # Panics
/// If the store breaks its promises.
pub async fn check<St: Store>(store: St) {
    let ids = RandomState::new();
    let id = |name: &str| Id::of(format!("{name} {:x}", ids.hash_one(name)));
    the_first_is_new_and_the_next_one_is_told(&store, id("first")).await;
    what_is_forgotten_is_new(&store, id("forgotten")).await;
    who_waits_is_told_of_both_ends(&store, [id("waits a"), id("waits b")]).await;
    ids_are_told_apart(&store, [id("apart a"), id("apart b")]).await;
    one_of_many_begins(&store, id("many")).await;
    a_begin_that_is_dropped_leaves_nothing(&store, id("dropped")).await;
    a_finish_counts_although_nobody_waits_for_it(&store, id("unpolled")).await;
}

async fn the_first_is_new_and_the_next_one_is_told<St: Store>(store: &St, id: Id) {
    let lease = new(store, id, "an id that nobody began").await;
    assert!(matches!(begin(store, id).await, Begun::Running), "an id that was begun is not running");
    assert!(matches!(begin(&store.clone(), id).await, Begun::Running), "a clone does not know what runs");
    within(store.finish(id, lease)).await.expect("the store finishes");
    assert!(matches!(begin(store, id).await, Begun::Done), "an id that was finished is not done");
    assert!(matches!(begin(store, id).await, Begun::Done), "an id that was done is not done any more");
}

async fn what_is_forgotten_is_new<St: Store>(store: &St, id: Id) {
    for _ in 0..2 {
        let lease = new_at_last(store, id, "an id that was forgotten is not new").await;
        store.forget(id, lease);
    }
    let lease = new_at_last(store, id, "an id that was forgotten is not new").await;
    within(store.finish(id, lease)).await.expect("the store finishes");
    assert!(matches!(begin(store, id).await, Begun::Done), "an id that was forgotten before cannot be done");
}

async fn who_waits_is_told_of_both_ends<St: Store>(store: &St, [done, forgotten]: [Id; 2]) {
    let lease = new(store, done, "an id that nobody began").await;
    let mut waits = pin!(store.wait(done, 0));
    let _ = poll_once(waits.as_mut()).await;
    within(store.finish(done, lease)).await.expect("the store finishes");
    within(waits).await;
    within(store.wait(done, 1)).await;

    let lease = new(store, forgotten, "an id that nobody began").await;
    let mut waits = pin!(store.wait(forgotten, 0));
    let _ = poll_once(waits.as_mut()).await;
    store.forget(forgotten, lease);
    within(waits).await;
    let lease = new_at_last(store, forgotten, "an id that was waited for is not new").await;
    store.forget(forgotten, lease);
}

async fn ids_are_told_apart<St: Store>(store: &St, [one, two]: [Id; 2]) {
    let first = new(store, one, "an id that nobody began").await;
    let second = new(store, two, "an id that nobody began, beside another one").await;
    store.forget(one, first);
    assert!(matches!(begin(store, two).await, Begun::Running), "forgetting one id has forgotten another one");
    within(store.finish(two, second)).await.expect("the store finishes");
    let first = new_at_last(store, one, "finishing one id has finished another one").await;
    store.forget(one, first);
}

async fn one_of_many_begins<St: Store>(store: &St, id: Id) {
    let mut asks: Vec<_> = (0..16).map(|_| (Box::pin(store.begin(id)), None)).collect();
    within(poll_fn(|cx| {
        for (ask, answer) in &mut asks {
            if answer.is_none()
                && let Poll::Ready(begun) = ask.as_mut().poll(cx)
            {
                *answer = Some(begun.expect("the store answers"));
            }
        }
        match asks.iter().all(|(_, answer)| answer.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }))
    .await;
    let mut leases: Vec<_> = asks
        .into_iter()
        .filter_map(|(_, answer)| match answer {
            Some(Begun::New(lease)) => Some(lease),
            _ => None,
        })
        .collect();
    assert_eq!(
        leases.len(),
        1,
        "of all who begin at the same time, not exactly one was told that the id is new"
    );
    leases.drain(..).for_each(|lease| store.forget(id, lease));
}

async fn a_begin_that_is_dropped_leaves_nothing<St: Store>(store: &St, id: Id) {
    drop(store.begin(id));
    let mut begins = Box::pin(store.begin(id));
    let begun = begins.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(begins);
    match begun {
        // Too late to drop it.
        Poll::Ready(Ok(Begun::New(lease))) => store.forget(id, lease),
        Poll::Ready(Ok(_)) => {}
        Poll::Ready(Err(error)) => panic!("the store cannot begin: {error}"),
        Poll::Pending => {}
    }
    let lease = new_at_last(store, id, "an id whose begin was dropped stays running").await;
    store.forget(id, lease);
}

async fn a_finish_counts_although_nobody_waits_for_it<St: Store>(store: &St, id: Id) {
    let lease = new(store, id, "an id that nobody began").await;
    drop(store.finish(id, lease));
    within(async {
        for round in 0.. {
            match begin(store, id).await {
                Begun::Done => return,
                Begun::Running => store.wait(id, round).await,
                Begun::New(_) => panic!("an id is forgotten if nobody waits for its finish"),
            }
        }
    })
    .await;
}

async fn begin<St: Store>(store: &St, id: Id) -> Begun<St::Lease> {
    within(store.begin(id)).await.unwrap_or_else(|error| panic!("the store cannot begin: {error}"))
}

async fn new<St: Store>(store: &St, id: Id, what: &str) -> St::Lease {
    match begin(store, id).await {
        Begun::New(lease) => lease,
        Begun::Running => panic!("{what} is running"),
        Begun::Done => panic!("{what} is done"),
    }
}

async fn new_at_last<St: Store>(store: &St, id: Id, otherwise: &str) -> St::Lease {
    within(async {
        let mut round = 0;
        loop {
            match begin(store, id).await {
                Begun::New(lease) => return lease,
                Begun::Running => store.wait(id, round).await,
                Begun::Done => panic!("{otherwise}: it is done"),
            }
            round += 1;
        }
    })
    .await
}

async fn within<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("the store took too long")
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}
