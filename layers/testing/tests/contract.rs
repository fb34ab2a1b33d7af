//! The check finds each fault, and finds none where there is none.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use parking_lot::Mutex;
use pin_project::pin_project;
use tower::{
    Layer, Service, ServiceBuilder, layer::layer_fn, limit::ConcurrencyLimitLayer, util::BoxCloneService,
};
use tower_mq_delivery::{BoxError, CarryOne, Delivery, Message, Outcome};
use tower_mq_testing::{
    Recorder,
    contract::{Inner, check, find_fault},
};

async fn fault<L>(layer: L) -> String
where
    L: Layer<Inner>,
    L::Service: Service<Message, Response: 'static, Error: Into<BoxError>> + Clone,
{
    find_fault::<Message, _>(layer).await.expect_err("there is a fault").to_string()
}

#[tokio::test(start_paused = true)]
async fn towers_own_layers_keep_it() {
    check::<Message, _>(layer_fn(|inner: Inner| inner)).await;
    check::<Delivery, _>(layer_fn(|inner: Inner| inner)).await;
    check::<Message, _>(Recorder::new()).await;
    check::<Message, _>(ConcurrencyLimitLayer::new(1)).await;
    check::<Delivery, _>(ConcurrencyLimitLayer::new(2)).await;
    check::<Delivery, _>(tower::timeout::TimeoutLayer::new(Duration::from_secs(5))).await;
    check::<Message, _>(ServiceBuilder::new().concurrency_limit(9).map_request(|m: Message| m).into_inner())
        .await;
}

/// A buffer is one instance, and a task that is started by its layer.
#[tokio::test(start_paused = true)]
async fn a_layer_that_starts_a_task_is_found() {
    let fault = fault(tower::buffer::BufferLayer::new(8)).await;
    assert!(fault.contains("`layer` started a task"), "{fault}");
}

/// A layer that is written as one should.
#[derive(Clone)]
struct Plain<S>(S);

impl<R, S: Service<R>> Service<R> for Plain<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

/// Says that it is ready, and does not ask.
#[derive(Clone)]
struct NeverAsks<S>(S);

impl<R, S: Service<R>> Service<R> for NeverAsks<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_readiness_is_found() {
    check::<Message, _>(layer_fn(Plain)).await;
    let fault = fault(layer_fn(NeverAsks)).await;
    assert!(fault.contains("on an instance that was not ready"), "{fault}");
}

/// Asks one instance, and calls its clone.
#[derive(Clone)]
struct CallsTheClone<S>(S);

impl<S> Service<Message> for CallsTheClone<S>
where
    S: Service<Message> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Message) -> Self::Future {
        let mut clone = self.0.clone();
        Box::pin(async move { clone.call(request).await })
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_is_called_in_place_of_the_ready_one_is_found() {
    let fault = fault(layer_fn(CallsTheClone)).await;
    assert!(fault.contains("on an instance that was not ready"), "{fault}");
}

/// Remembers that it was ready, in its clones, too.
#[derive(Clone)]
struct CloneKeepsReadiness<S> {
    inner: S,
    ready: bool,
}

impl<R, S: Service<R>> Service<R> for CloneKeepsReadiness<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if !self.ready {
            ready!(self.inner.poll_ready(cx))?;
            self.ready = true;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> S::Future {
        self.ready = false;
        self.inner.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_keeps_readiness_is_found() {
    let fault = fault(layer_fn(|inner| CloneKeepsReadiness { inner, ready: false })).await;
    assert!(fault.contains("not ready") && fault.contains("cloning a ready instance"), "{fault}");
}

/// How a limit of one's own can be wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// The place is given back at the end of the future, and so not if the future is dropped.
    LeaksOnDrop,
    /// The place is taken when ready, and lost if the instance is dropped.
    LeaksWhenReady,
    /// Nobody is told of a free place.
    NeverWakes,
    /// One that waits and leaves takes the wake-up along.
    WakesTheGone,
    /// Nothing is wrong: one is woken for each place.
    NothingInTurn,
    /// The same, but one that gets a place without being woken stays in the line.
    StaysInLine,
}

impl Wrong {
    fn in_turn(self) -> bool {
        matches!(self, Self::NothingInTurn | Self::StaysInLine | Self::WakesTheGone)
    }
}

/// At most two at a time; waiters are woken in turn.
#[derive(Default)]
struct Places {
    taken: AtomicUsize,
    waiting: Mutex<Vec<(u64, Waker)>>,
    next: AtomicUsize,
}

impl Places {
    fn free(&self, wrong: Wrong) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
        self.wake(wrong);
    }

    fn wake(&self, wrong: Wrong) {
        if wrong == Wrong::NeverWakes {
            return;
        }
        let mut waiting = self.waiting.lock();
        match wrong.in_turn() {
            true if !waiting.is_empty() => waiting.remove(0).1.wake(),
            true => {}
            false => waiting.drain(..).for_each(|(_, waker)| waker.wake()),
        }
    }

    /// Whether it waited, and was not woken.
    fn leave_line(&self, id: u64) -> bool {
        let mut waiting = self.waiting.lock();
        let place = waiting.iter().position(|(waits, _)| *waits == id);
        place.map(|place| waiting.remove(place)).is_some()
    }
}

struct Limit<S> {
    inner: S,
    places: Arc<Places>,
    wrong: Wrong,
    id: u64,
    mine: bool,
    waits: bool,
}

impl<S: Clone> Clone for Limit<S> {
    fn clone(&self) -> Self {
        let id = self.places.next.fetch_add(1, Ordering::Relaxed) as u64 + 1;
        Self {
            inner: self.inner.clone(),
            places: self.places.clone(),
            wrong: self.wrong,
            id,
            mine: false,
            waits: false,
        }
    }
}

impl<S> Drop for Limit<S> {
    fn drop(&mut self) {
        if self.mine && self.wrong != Wrong::LeaksWhenReady {
            self.places.free(self.wrong);
        }
        if self.waits && !matches!(self.wrong, Wrong::WakesTheGone) && !self.places.leave_line(self.id) {
            self.places.wake(self.wrong);
        }
    }
}

impl<R, S: Service<R>> Service<R> for Limit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = LimitFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if !self.mine {
            let mut waiting = self.places.waiting.lock();
            if self.places.taken.load(Ordering::Acquire) == 2 {
                waiting.retain(|(id, _)| *id != self.id);
                waiting.push((self.id, cx.waker().clone()));
                self.waits = true;
                return Poll::Pending;
            }
            drop(waiting);
            if self.waits && self.wrong != Wrong::StaysInLine {
                self.places.leave_line(self.id);
            }
            self.waits = false;
            self.places.taken.fetch_add(1, Ordering::AcqRel);
            self.mine = true;
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.mine = false;
        let place = Place { places: self.places.clone(), wrong: self.wrong, ended: AtomicBool::new(false) };
        LimitFuture { inner: self.inner.call(request), place }
    }
}

struct Place {
    places: Arc<Places>,
    wrong: Wrong,
    ended: AtomicBool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.wrong != Wrong::LeaksOnDrop || self.ended.load(Ordering::Acquire) {
            self.places.free(self.wrong);
        }
    }
}

#[pin_project]
struct LimitFuture<F> {
    #[pin]
    inner: F,
    place: Place,
}

impl<F: Future> Future for LimitFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.inner.poll(cx));
        this.place.ended.store(true, Ordering::Release);
        Poll::Ready(output)
    }
}

fn limit(wrong: Wrong) -> impl Layer<Inner, Service = Limit<Inner>> {
    layer_fn(move |inner| Limit { inner, places: Arc::default(), wrong, id: 0, mine: false, waits: false })
}

#[tokio::test(start_paused = true)]
async fn a_limit_without_faults_has_none() {
    check::<Message, _>(limit(Wrong::Nothing)).await;
    check::<Delivery, _>(limit(Wrong::Nothing)).await;
    check::<Delivery, _>(limit(Wrong::NothingInTurn)).await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_leaks_with_a_dropped_future_is_found() {
    let fault = fault(limit(Wrong::LeaksOnDrop)).await;
    assert!(fault.contains("a reservation has leaked") && fault.contains("not polled"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_leaks_with_a_dropped_instance_is_found() {
    let fault = fault(limit(Wrong::LeaksWhenReady)).await;
    assert!(fault.contains("a reservation has leaked") && fault.contains("are ready"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_is_found() {
    let fault = fault(limit(Wrong::NeverWakes)).await;
    assert!(
        fault.contains("a wake-up was lost") || fault.contains("none of those who wait was woken"),
        "{fault}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_goes_to_one_who_left_is_found() {
    let fault = fault(limit(Wrong::WakesTheGone)).await;
    assert!(fault.contains("none of those who wait was woken"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_goes_to_one_who_needs_none_is_found() {
    let fault = fault(limit(Wrong::StaysInLine)).await;
    assert!(fault.contains("the one who still waits was not woken"), "{fault}");
}

/// Looks at the future once, and forgets the waker.
#[derive(Clone)]
struct DeafFuture<S>(S);

impl<R, S: Service<R>> Service<R> for DeafFuture<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Deaf<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        Deaf(self.0.call(request))
    }
}

#[pin_project]
struct Deaf<F>(#[pin] F);

impl<F: Future> Future for Deaf<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<F::Output> {
        self.project().0.poll(&mut Context::from_waker(Waker::noop()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_woken_is_found() {
    let fault = fault(layer_fn(DeafFuture)).await;
    assert!(fault.contains("a response was not woken"), "{fault}");
}

/// Keeps what it was given, in a place where nobody looks.
#[derive(Clone)]
struct Keeps {
    inner: Inner,
    kept: Arc<Mutex<Vec<Delivery>>>,
}

impl Service<Delivery> for Keeps {
    type Response = ();
    type Error = BoxError;
    type Future = std::future::Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Service::<Delivery>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, request: Delivery) -> Self::Future {
        drop(self.inner.call(Delivery::detached(request.message().clone())));
        self.kept.lock().push(request);
        std::future::ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_kept_is_found() {
    let kept = Arc::default();
    let layer = layer_fn(|inner| Keeps { inner, kept: Arc::clone(&kept) });
    let fault = find_fault::<Delivery, _>(layer).await.expect_err("there is a fault").to_string();
    assert!(fault.contains("neither settled nor given back"), "{fault}");
}

/// After an error it is never ready again.
#[derive(Clone)]
struct Poisoned<S> {
    inner: S,
    poisoned: Arc<AtomicBool>,
}

impl<R, S> Service<R> for Poisoned<S>
where
    R: CarryOne + 'static,
    S: Service<R>,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        match self.poisoned.load(Ordering::Acquire) {
            true => Poll::Pending,
            false => self.inner.poll_ready(cx),
        }
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (response, poisoned) = (self.inner.call(request), self.poisoned.clone());
        Box::pin(async move {
            let response = response.await;
            poisoned.fetch_or(response.is_err(), Ordering::AcqRel);
            response
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_one_error_poisons_is_found() {
    let fault = fault(layer_fn(|inner| Poisoned { inner, poisoned: Arc::default() })).await;
    assert!(fault.contains("while calls fail"), "{fault}");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the layer breaks the contract: it called the inner service on an instance")]
async fn check_panics_with_the_fault() {
    check::<Message, _>(layer_fn(NeverAsks)).await;
}

#[tokio::test(start_paused = true)]
async fn a_whole_stack_can_be_checked() {
    let stack = layer_fn(|inner: Inner| {
        let service = ServiceBuilder::new().concurrency_limit(2).service(inner);
        BoxCloneService::<Message, Outcome, BoxError>::new(service)
    });
    check::<Message, _>(stack).await;
}
