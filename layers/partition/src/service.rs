//! The service: takes a place, then enters a lane.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;
use tower_mq_delivery::{BoxError, CarryOne, Turn};
use tower_service::Service;

use crate::{
    NoRuntime, PartitionLayer,
    capacity::{Capacity, Waiter},
    future::ResponseFuture,
    inline::Inline,
    key::Route,
    lane::{Entered, Lane, LaneIntake, report, run},
    layer::Mode,
    pool::Pool,
    slots::Slots,
    sync::Mutex,
    ticket::Ticket,
    worker,
};

/// What [`PartitionLayer`] makes of a service.
///
/// Clones share the lanes: the order holds across them.
pub struct Partition<S, R>
where
    S: Service<R>,
{
    shared: Arc<Shared<S, R>>,
    /// The place reserved in `poll_ready`.
    place: Option<u32>,
    waiter: Waiter,
}

/// Where fresh clones of the inner service come from.
///
/// Behind a lock, because the service need not be `Sync`; it is cloned when a lane starts and after a panic, never for
/// a delivery.
pub(crate) struct Template<S>(Mutex<S>);

impl<S> Template<S> {
    pub(crate) fn new(service: S) -> Self {
        Self(Mutex::new(service))
    }
}

impl<S: Clone> Template<S> {
    pub(crate) fn service(&self) -> S {
        self.0.lock().clone()
    }
}

/// What the handles share, and nobody else: it is dropped with the last one.
struct Shared<S, R>
where
    S: Service<R>,
{
    route: Route,
    order: Order<S, R>,
}

type Lanes<R, A> = Box<[Arc<Lane<R, A>>]>;

/// What keeps the order.
enum Order<S, R>
where
    S: Service<R>,
{
    /// A task for each lane.
    Lanes { lanes: Lanes<R, S::Response>, slots: Arc<Slots<S::Response>>, template: Arc<Template<S>> },
    /// A task for each worker.
    Pool { pool: Arc<Pool<R, S::Response>>, slots: Arc<Slots<S::Response>>, template: Arc<Template<S>> },
    /// No tasks.
    Inline(Arc<Inline<S, R>>),
}

impl<S, R> Order<S, R>
where
    S: Service<R>,
{
    #[inline]
    fn capacity(&self) -> &Capacity {
        match self {
            Self::Lanes { slots, .. } | Self::Pool { slots, .. } => slots.capacity(),
            Self::Inline(inline) => inline.capacity(),
        }
    }
}

impl<S, R> Partition<S, R>
where
    S: Service<R> + Clone,
{
    pub(crate) fn new(inner: S, layer: &PartitionLayer<R>) -> Self {
        let (places, n) = (layer.places(), layer.n);
        // More workers than places would never work.
        let workers = n.min(places as usize);
        let template = Template::new(inner);
        let order = match (layer.inline, layer.mode) {
            (true, Mode::ByKey) => Order::Inline(Arc::new(Inline::new(template, n, places, true))),
            (true, _) => Order::Inline(Arc::new(Inline::new(template, workers, places, false))),
            (false, Mode::ByKey) => {
                let roomy = 4 * places as usize / n;
                Order::Lanes {
                    lanes: (0..n).map(|_| Arc::new(Lane::new(roomy))).collect(),
                    slots: Arc::new(Slots::new(places)),
                    template: Arc::new(template),
                }
            }
            (false, Mode::PerKey | Mode::Unordered) => Order::Pool {
                pool: Arc::new(Pool::new(workers, places)),
                slots: Arc::new(Slots::new(places)),
                template: Arc::new(template),
            },
        };
        let shared = Shared { route: Route::new(layer.mode, n, layer.key.clone()), order };
        Self { shared: Arc::new(shared), place: None, waiter: Waiter::default() }
    }
}

/// What a lane is started on.
fn runtime() -> Result<Handle, BoxError> {
    Handle::try_current().map_err(|_| NoRuntime.into())
}

impl<S, R> Service<R> for Partition<S, R>
where
    S: Service<R> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: CarryOne + Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S, R>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.place.is_none() {
            self.place = Some(ready!(self.shared.order.capacity().poll_take(&mut self.waiter, cx))?);
        }
        Poll::Ready(Ok(()))
    }

    /// # Panics
    /// If `poll_ready` has not said that it is ready.
    #[inline]
    fn call(&mut self, mut request: R) -> ResponseFuture<S, R> {
        let Shared { route, order } = &*self.shared;
        // The user's function for keys may panic: the place is still reserved then.
        let key = route.of(request.message());
        let Some(place) = self.place.take() else { panic!("a partition was called before it was ready") };
        let turn = request.message_mut().set_turn(Turn::detached());
        match order {
            Order::Lanes { lanes, slots, template } => {
                let (number, (caller, runner)) = (key as usize, slots.split(place));
                let lane = &lanes[number];
                // Told before, or the lane might be faster to tell that it has begun.
                report(&request, number, || lane.waiting() + 1);
                match lane.enter(request, runner, runtime) {
                    Entered::Queued => turn.pass(),
                    Entered::Start(runtime) => {
                        let intake = LaneIntake::new(number, lane.clone());
                        drop(runtime.spawn(run(intake, template.clone(), slots.clone())));
                        turn.pass();
                    }
                    Entered::Refused => {}
                }
                ResponseFuture::task(caller)
            }
            Order::Pool { pool, slots, template } => {
                let (caller, runner) = slots.split(place);
                match pool.enter(key, request, runner, runtime) {
                    Entered::Queued => turn.pass(),
                    Entered::Start((runtime, worker)) => {
                        worker::start(&runtime, worker, template, slots);
                        turn.pass();
                    }
                    Entered::Refused => {}
                }
                ResponseFuture::task(caller)
            }
            Order::Inline(inline) => {
                let ticket = Ticket::new(inline, key, request, place);
                turn.pass();
                ResponseFuture::inline(ticket)
            }
        }
    }
}

impl<S, R> Clone for Partition<S, R>
where
    S: Service<R>,
{
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), place: None, waiter: Waiter::default() }
    }
}

impl<S, R> Drop for Partition<S, R>
where
    S: Service<R>,
{
    fn drop(&mut self) {
        let capacity = self.shared.order.capacity();
        if let Some(place) = self.place.take() {
            capacity.give_back(place);
        }
        capacity.leave(&mut self.waiter);
    }
}

impl<S, R> Drop for Shared<S, R>
where
    S: Service<R>,
{
    fn drop(&mut self) {
        match &self.order {
            Order::Lanes { lanes, .. } => lanes.iter().for_each(|lane| lane.close()),
            Order::Pool { pool, .. } => pool.close(),
            Order::Inline(_) => {}
        }
    }
}

impl<S, R> fmt::Debug for Partition<S, R>
where
    S: Service<R>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("ready", &self.place.is_some()).finish_non_exhaustive()
    }
}
