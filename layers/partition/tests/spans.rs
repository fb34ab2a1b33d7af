//! The span that a delivery is called in is the span that it is handled in.

mod stage;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use stage::{message, modes, quiet};
use tokio::task::yield_now;
use tower::{Layer as _, Service, ServiceExt};
use tower_mq_delivery::{BoxError, Message};
use tracing::{Span, Subscriber, info_span, span, subscriber::set_default};
use tracing_subscriber::{Registry, layer::SubscriberExt};

/// Counts the spans that are over.
struct Closed(Arc<AtomicUsize>);

impl<S: Subscriber> tracing_subscriber::Layer<S> for Closed {
    fn on_close(&self, _: span::Id, _: tracing_subscriber::layer::Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The spans that each delivery has seen, from its readiness to the drop of its future.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<u8, Vec<Option<span::Id>>>>>);

impl Seen {
    fn look(&self, id: u8) {
        self.0.lock().entry(id).or_default().push(Span::current().id());
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.look(self.1);
    }
}

struct Looking(Seen, u8);

#[derive(Clone)]
struct Handler {
    seen: Seen,
    ready: Option<span::Id>,
}

impl Service<Message> for Handler {
    type Response = ();
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = Span::current().id();
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: Message) -> Self::Future {
        let id = message.payload()[0];
        self.seen.0.lock().entry(id).or_default().push(self.ready.take());
        self.seen.look(id);
        let looking = Looking(self.seen.clone(), id);
        Box::pin(async move {
            for round in 0..5 {
                looking.0.look(id);
                match round {
                    // Some sleep, so that others come between.
                    2 if id.is_multiple_of(3) => {
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await
                    }
                    _ => yield_now().await,
                }
            }
            if id.is_multiple_of(5) {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_handled_in_the_span_that_it_was_called_in() {
    let over = Arc::new(AtomicUsize::new(0));
    let _default = set_default(Registry::default().with(Closed(over.clone())));
    let mut ended = 0;
    for (mode, layer) in modes(3) {
        let seen = Seen::default();
        let mut service = layer.layer(Handler { seen: seen.clone(), ready: None });
        let (mut spans, mut responses) = (HashMap::new(), Vec::new());
        for id in 1..=40 {
            service.ready().await.expect("ready");
            // Entered for the call only: nothing but the partition brings it to the lane.
            let span = info_span!("delivery", id);
            spans.insert(id, span.id());
            responses.push(tokio::spawn(span.in_scope(|| service.call(message(id, id % 7)))));
            if id % 4 == 0 {
                yield_now().await;
            }
        }
        quiet().await;
        // Every fifth one never ends: it is dropped where it waits, or runs.
        while !responses.iter().all(|response| response.is_finished()) {
            let stuck = (0..40).filter(|at| (at + 1) % 5 == 0);
            stuck.for_each(|at| responses[at].abort());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        drop(join_all(responses).await);
        quiet().await;
        ended += spans.len();
        assert_eq!(over.load(Ordering::Relaxed), ended, "{mode}: a span lives as long as its delivery");
        for (id, span) in spans {
            let seen = seen.0.lock().remove(&id).unwrap_or_default();
            assert!(seen.iter().all(|other| *other == span), "{mode}: {id} saw {seen:?}, not {span:?}");
            assert!(seen.len() == 8 || id % 5 == 0, "{mode}: {id} was looked at {} times", seen.len());
        }
    }
}
