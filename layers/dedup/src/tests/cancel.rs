//! A future that is dropped, at whatever stage, leaves nothing behind.

use std::time::Duration;

use tokio_test::task;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_mq_delivery::{BoxError, Message, Outcome};

use super::{Remote, Source};
use crate::{DedupLayer, MemoryStore, Store};

/// Polls a call so many times, and drops it. `true`: it had ended by then.
async fn drop_after<St: Store + Clone>(store: &St, polls: usize, twin: bool) -> bool {
    let source = Source::new();
    let handled = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = handled.clone();
    let mut stack = ServiceBuilder::new()
        .layer(DedupLayer::new(store.clone()))
        .layer(ConcurrencyLimitLayer::new(2))
        .service(service_fn(move |_: Message| {
            let count = count.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                // The twin's first one fails, so that it comes to its turn.
                match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                    0 if twin => Err(BoxError::from("not yet")),
                    _ => Ok(()),
                }
            }
        }));
    let mut first = None;
    if twin {
        let mut call = task::spawn(stack.ready().await.expect("ready").call(source.message("a")));
        assert!(call.poll().is_pending());
        // It has begun, also with a store that has to be asked.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(call.poll().is_pending());
        first = Some(call);
    }
    let mut ended = false;
    let mut second = task::spawn(stack.ready().await.expect("ready").call(source.message("a")));
    for _ in 0..polls {
        if first.as_mut().is_some_and(|call| call.is_woken() && call.poll().is_ready()) {
            first = None;
        }
        if second.poll().is_ready() {
            ended = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop((first, second));
    // Whoever comes now is not held up, and both places are free.
    let outcome = tokio::time::timeout(Duration::from_secs(1), async {
        let mut one = stack.clone();
        let mut two = stack.clone();
        one.ready().await.expect("ready");
        two.ready().await.expect("ready");
        drop(two);
        // The handler fails once.
        loop {
            match one.ready().await.expect("ready").call(source.message("a")).await {
                Ok(outcome) => return outcome,
                Err(_) => one = stack.clone(),
            }
        }
    });
    assert_eq!(outcome.await.expect("nothing holds it up"), Outcome::Ack);
    ended
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_at_any_stage_holds_up_nobody() {
    for twin in [false, true] {
        for polls in (0..40).chain([399]) {
            let memory = MemoryStore::new();
            let ended = drop_after(&memory, polls, twin).await;
            assert_eq!(memory.len(), 1, "only what was handled is remembered");
            let remote = Remote::new();
            let ended = drop_after(&remote, polls, twin).await & ended;
            assert_eq!(remote.0.memory.len(), 1, "only what was handled is remembered");
            assert!(polls < 399 || ended, "the calls come to their end");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_handled_is_remembered_although_nobody_waits_for_the_store() {
    let (source, store) = (Source::new(), Remote::new());
    let mut stack =
        DedupLayer::new(store.clone()).layer(service_fn(|_: Message| async { Ok::<_, BoxError>(()) }));
    let mut call = task::spawn(stack.call(source.message("a")));
    assert!(call.poll().is_pending(), "the store is asked");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(call.poll().is_pending(), "the store is told");
    drop(call);
    assert_eq!(stack.call(source.message("a")).await.expect("an outcome"), Outcome::Ack);
    assert_eq!(source.events(), ["duplicate"]);
}

#[tokio::test]
async fn the_handler_is_gone_before_its_id_is_forgotten() {
    let (source, layer) = (Source::new(), DedupLayer::in_memory());
    let store = layer.store().clone();
    struct Watch(MemoryStore);
    impl Drop for Watch {
        fn drop(&mut self) {
            assert_eq!(self.0.len(), 1, "it is still running");
        }
    }
    let theirs = store.clone();
    let mut stack = layer.layer(service_fn(move |_: Message| {
        let watch = Watch(theirs.clone());
        async move {
            let _watch = watch;
            std::future::pending::<Result<(), BoxError>>().await
        }
    }));
    let mut call = task::spawn(stack.call(source.message("a")));
    assert!(call.poll().is_pending());
    drop(call);
    assert!(store.is_empty());
}
