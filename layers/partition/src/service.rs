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
    key::Route,
    lane::{Entered, Lane, LaneIntake, run},
    slots::Slots,
    sync::Mutex,
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
    lanes: Lanes<S, R>,
}

enum Lanes<S, R>
where
    S: Service<R>,
{
    ByKey {
        lanes: Box<[Arc<Lane<R, S::Response>>]>,
        slots: Arc<Slots<S::Response>>,
        template: Arc<Template<S>>,
    },
}

impl<S, R> Partition<S, R>
where
    S: Service<R> + Clone,
{
    pub(crate) fn new(inner: S, layer: &PartitionLayer<R>) -> Self {
        let places = layer.places();
        let template = Arc::new(Template(Mutex::new(inner)));
        let roomy = 4 * places as usize / layer.n;
        let lanes = Lanes::ByKey {
            lanes: (0..layer.n).map(|_| Arc::new(Lane::new(roomy))).collect(),
            slots: Arc::new(Slots::new(places)),
            template,
        };
        let shared = Shared { route: Route::new(layer.key.clone()), lanes };
        Self { shared: Arc::new(shared), place: None, waiter: Waiter::default() }
    }
}

impl<S, R> Partition<S, R>
where
    S: Service<R>,
{
    fn capacity(&self) -> &Capacity {
        match &self.shared.lanes {
            Lanes::ByKey { slots, .. } => slots.capacity(),
        }
    }
}

/// The place that `poll_ready` took.
#[inline]
fn reserved(place: &mut Option<u32>) -> u32 {
    place.take().unwrap_or_else(|| panic!("a partition was called before it was ready"))
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
            let shared = &self.shared;
            let capacity = match &shared.lanes {
                Lanes::ByKey { slots, .. } => slots.capacity(),
            };
            self.place = Some(ready!(capacity.poll_take(&mut self.waiter, cx))?);
        }
        Poll::Ready(Ok(()))
    }

    /// # Panics
    /// If `poll_ready` has not said that it is ready.
    #[inline]
    fn call(&mut self, mut request: R) -> ResponseFuture<S, R> {
        let Shared { route, lanes } = &*self.shared;
        match lanes {
            Lanes::ByKey { lanes, slots, template } => {
                // The user's key function may panic: the place is still ours then.
                let lane = &lanes[route.lane(request.message(), lanes.len())];
                let (caller, runner) = slots.split(reserved(&mut self.place));
                let turn = request.message_mut().set_turn(Turn::detached());
                match lane.enter(request, runner, runtime) {
                    Entered::Queued => turn.pass(),
                    Entered::Start(runtime) => {
                        let intake = LaneIntake::new(lane.clone());
                        drop(runtime.spawn(run(intake, template.clone(), slots.clone())));
                        turn.pass();
                    }
                    Entered::Refused => {}
                }
                ResponseFuture::task(caller)
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
        if let Some(place) = self.place.take() {
            self.capacity().give_back(place);
        }
        let mut waiter = std::mem::take(&mut self.waiter);
        self.capacity().leave(&mut waiter);
    }
}

impl<S, R> Drop for Shared<S, R>
where
    S: Service<R>,
{
    fn drop(&mut self) {
        match &self.lanes {
            Lanes::ByKey { lanes, .. } => lanes.iter().for_each(|lane| lane.close()),
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
