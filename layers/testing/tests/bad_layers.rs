//! Each thing that a layer can do wrong without failing at once is found.

use std::{
    collections::HashSet,
    future::{pending, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, select},
};
use parking_lot::Mutex;
use tower::{Service, layer::layer_fn, limit::ConcurrencyLimitLayer};
use tower_mq_delivery::{BoxError, Delivery, Message, Outcome, Publication};
use tower_mq_testing::contract::{Inner, check, find_fault};

/// What a layer does, right or wrong.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Answers by itself what is stale or known, and says so.
    Declines,
    /// The same, without a word.
    SkipsStale,
    SkipsKnown,
    SkipsWhenDraining,
    NeverCalls,
    CallsTwiceAtATime,
    AcksErrors,
    AcksReleases,
    ReleasesAcks,
    KeepsMessages,
    NeedsAKey,
    NeedsAnId,
    PanicsWhenDropped,
    HidesFailure,
    SleepsOnWhileDraining,
    StaysBusyAfterAPanic,
    LosesPanics,
    LeavesATask,
}

#[derive(Clone)]
struct Layered {
    inner: Inner,
    does: Does,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    kept: Mutex<Vec<Message>>,
    known: Mutex<HashSet<String>>,
    busy: AtomicBool,
    task: AtomicBool,
}

type Answer = Result<Outcome, BoxError>;

impl Layered {
    /// Whether it answers by itself.
    fn skips(&self, message: &Message) -> bool {
        let known = || message.id().is_some_and(|id| !self.shared.known.lock().insert(id.into_owned()));
        match self.does {
            Does::Declines => message.is_stale() || message.origin().drain().is_some() || known(),
            Does::SkipsStale => message.is_stale(),
            Does::SkipsWhenDraining => message.origin().drain().is_some(),
            Does::SkipsKnown => known(),
            Does::NeverCalls => true,
            _ => false,
        }
    }
}

impl Service<Message> for Layered {
    type Response = Outcome;
    type Error = BoxError;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.shared.busy.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        match Service::<Message>::poll_ready(&mut self.inner, cx) {
            Poll::Ready(Err(_)) if self.does == Does::HidesFailure => Poll::Ready(Ok(())),
            ready => ready,
        }
    }

    fn call(&mut self, message: Message) -> Self::Future {
        let shared = self.shared.clone();
        if self.skips(&message) {
            if self.does == Does::Declines {
                message.turn().decline();
            }
            return async { Ok(Outcome::Ack) }.boxed();
        }
        let missing = match self.does {
            Does::NeedsAKey => message.key().is_none(),
            Does::NeedsAnId => message.id().is_none(),
            _ => false,
        };
        if missing {
            return async { Err("not such a message".into()) }.boxed();
        }
        if self.does == Does::KeepsMessages {
            shared.kept.lock().push(message.clone());
        }
        if self.does == Does::StaysBusyAfterAPanic {
            shared.busy.store(true, Ordering::Release);
        }
        if self.does == Does::LeavesATask && !shared.task.swap(true, Ordering::AcqRel) {
            tokio::spawn(pending::<()>());
        }
        if self.does == Does::CallsTwiceAtATime {
            let mut other = self.inner.clone();
            let copy = message.clone();
            let other = async move {
                poll_fn(|cx| Service::<Message>::poll_ready(&mut other, cx)).await?;
                other.call(copy).await
            };
            let first = self.inner.call(message);
            return select(first, other.boxed()).map(|either| either.factor_first().0).boxed();
        }
        let called = self.inner.call(message);
        self.shared.busy.store(false, Ordering::Release);
        match self.does {
            Does::AcksErrors => called.map(|answer| Ok(answer.unwrap_or(Outcome::Ack))).boxed(),
            Does::AcksReleases => called.map(|answer| answer.map(|_| Outcome::Ack)).boxed(),
            Does::ReleasesAcks => called.map(|answer| answer.map(|_| Outcome::Release)).boxed(),
            Does::SleepsOnWhileDraining => async move {
                let answer = called.await;
                if answer.is_err() {
                    tokio::time::sleep(Duration::from_secs(9)).await;
                }
                answer
            }
            .boxed(),
            Does::LosesPanics => async move {
                match std::panic::AssertUnwindSafe(called).catch_unwind().await {
                    Ok(answer) => answer,
                    Err(_) => pending().await,
                }
            }
            .boxed(),
            Does::PanicsWhenDropped => Touchy { called: called.boxed(), ended: false }.boxed(),
            _ => called.boxed(),
        }
    }
}

/// Does not like to be dropped before its end.
struct Touchy {
    called: BoxFuture<'static, Answer>,
    ended: bool,
}

impl Future for Touchy {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let answer = self.called.poll_unpin(cx);
        self.ended = answer.is_ready();
        answer
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(self.ended, "dropped too early");
    }
}

fn layer(does: Does) -> impl tower::Layer<Inner, Service = Layered> {
    layer_fn(move |inner| Layered { inner, does, shared: Arc::default() })
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_answers_by_itself_and_says_so_has_no_fault() {
    check::<Message, _>(layer(Does::Declines)).await;
}

#[tokio::test(start_paused = true)]
async fn each_thing_that_a_layer_can_do_wrong_is_found() {
    for (does, expected, case) in [
        (Does::SkipsStale, "keeps the reservation without a word", "has ended"),
        (Does::SkipsKnown, "keeps the reservation without a word", "comes twice"),
        (Does::SkipsWhenDraining, "keeps the reservation without a word", "drains"),
        (Does::NeverCalls, "the inner service was never called", "one after the other"),
        (Does::CallsTwiceAtATime, "twice at a time with one message", ""),
        (Does::AcksErrors, "made an ack of an error", "fail"),
        (Does::AcksReleases, "the message is lost", "releases"),
        (Does::ReleasesAcks, "the inner service had acked", ""),
        (Does::KeepsMessages, "keeps a message whose call has ended", ""),
        (Does::NeedsAKey, "a response was an error", "lack key, id and attempt"),
        (Does::NeedsAnId, "a response was an error", "lack key, id and attempt"),
        (Does::PanicsWhenDropped, "it panicked, and nobody else had", "dropping responses"),
        (Does::HidesFailure, "on an instance that was not ready", "fails for good"),
        (Does::SleepsOnWhileDraining, "goes on though the stack is about to end", "begins to drain"),
        (Does::StaysBusyAfterAPanic, "`poll_ready` stayed pending", "panics"),
        (Does::LosesPanics, "the panic was swallowed", "panics"),
        (Does::LeavesATask, "a task of it runs on", ""),
    ] {
        let fault = find_fault::<Message, _>(layer(does)).await.expect_err(expected);
        assert!(fault.what.contains(expected), "expected `{expected}`: {fault}");
        assert!(fault.case.contains(case), "expected it while {case}: {fault}");
    }
}

/// Says that it is ready when its inner service has failed, and answers with an error.
#[derive(Clone)]
struct Stubborn {
    inner: Inner,
    failed: bool,
}

impl<R: Send + 'static> Service<R> for Stubborn
where
    Inner: Service<R, Error = BoxError, Response: Send, Future: Send + 'static>,
{
    type Response = <Inner as Service<R>>::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let ready = self.inner.poll_ready(cx);
        self.failed = matches!(ready, Poll::Ready(Err(_)));
        ready.map(|_| Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        match self.failed {
            true => async { Err("the inner service has failed".into()) }.boxed(),
            false => self.inner.call(request).boxed(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_that_is_hidden_is_found() {
    let stubborn = layer_fn(|inner| Stubborn { inner, failed: false });
    for fault in [
        find_fault::<Message, _>(stubborn).await,
        find_fault::<Delivery, _>(stubborn).await,
        find_fault::<Publication, _>(stubborn).await,
    ] {
        let fault = fault.expect_err("there is a fault").to_string();
        assert!(fault.contains("nobody will stop"), "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_around_a_publisher_can_be_checked() {
    check::<Publication, _>(layer_fn(|inner: Inner| inner)).await;
    check::<Publication, _>(ConcurrencyLimitLayer::new(2)).await;
    check::<Publication, _>(tower::timeout::TimeoutLayer::new(Duration::from_secs(5))).await;
}
