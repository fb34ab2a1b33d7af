//! One case under way.

use std::{cell::RefCell, future::poll_fn, sync::Arc};

use tower_layer::Layer;
use tower_mq_delivery::{BoxError, Message};
use tower_service::Service;

use super::{
    Fault,
    inner::{Inner, Plan},
    request::Request,
    strict::{Strict, moment},
};
use crate::Probe;

/// A case under way: the strict service, the layer around it, and all that was asked of it.
pub(super) struct Case<R, S> {
    name: &'static str,
    pub(super) plan: Arc<Plan>,
    pub(super) service: S,
    probes: RefCell<Vec<Probe>>,
    made: RefCell<u64>,
    _request: std::marker::PhantomData<fn(R)>,
}

impl<R, S> Case<R, S>
where
    R: Request,
    S: Service<R> + Clone,
    S::Error: Into<BoxError>,
{
    pub(super) fn new<L: Layer<Inner, Service = S>>(name: &'static str, layer: &L, plan: Arc<Plan>) -> Self {
        let service = layer.layer(plan.service());
        let (probes, made) = (RefCell::default(), RefCell::default());
        Self { name, plan, service, probes, made, _request: std::marker::PhantomData }
    }

    pub(super) fn request(&self) -> R {
        let mut made = self.made.borrow_mut();
        *made += 1;
        let message = Message::builder("").key(made.to_be_bytes().to_vec()).attempt(1).build();
        let (request, probe) = R::make(message);
        self.probes.borrow_mut().extend(probe);
        request
    }

    pub(super) fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(Fault { case: self.name, what: self.plan.fault().unwrap_or(what) })
    }

    /// Waits until this instance is ready.
    pub(super) async fn ready(&self, service: &mut S) -> Result<(), Fault> {
        match Strict::new(poll_fn(|cx| service.poll_ready(cx))).outcome().await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => self.fault("`poll_ready` failed, and the inner service had not failed"),
            None => {
                self.fault("`poll_ready` stayed pending: a reservation has leaked, or a wake-up was lost")
            }
        }
    }

    /// Waits for the response.
    pub(super) async fn response(&self, future: S::Future) -> Result<Result<S::Response, S::Error>, Fault> {
        match Strict::new(future).outcome().await {
            Some(response) => Ok(response),
            None => self.fault("a response never came: a wake-up was lost, or the call was"),
        }
    }

    /// Waits until nobody holds a reservation of the inner service.
    pub(super) async fn idle(&self) -> Result<(), Fault> {
        match Strict::new(self.plan.idle()).outcome().await {
            Some(()) => Ok(()),
            None => {
                self.fault("it keeps a reservation of the inner service that nobody needs: others may starve")
            }
        }
    }

    /// One call, from readiness to a good response.
    pub(super) async fn call(&self, service: &mut S) -> Result<(), Fault> {
        self.ready(service).await?;
        let response = self.response(service.call(self.request())).await?;
        if response.is_err() {
            return self.fault("a response was an error, and the inner service had answered well");
        }
        Ok(())
    }

    /// Drops the layer, and looks for what it left behind.
    pub(super) async fn end(self) -> Result<(), Fault> {
        let Self { name, plan, service, probes, .. } = self;
        drop(service);
        plan.open();
        let idle = Strict::new(plan.idle()).outcome().await.is_some();
        moment().await;
        let fault = |what| Err(Fault { case: name, what });
        if let Some(what) = plan.fault() {
            return fault(what);
        }
        if !idle {
            return fault("a reservation of the inner service was never given back");
        }
        for probe in probes.into_inner() {
            match probe.times() {
                1 => {}
                0 => return fault("a delivery was neither settled nor given back"),
                _ => return fault("a delivery was settled more than once"),
            }
        }
        Ok(())
    }
}
