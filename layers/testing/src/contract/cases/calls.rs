//! Calls that come to a good end.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use tower_layer::Layer;
use tower_mq_delivery::Outcome;
use tower_service::Service;

use super::{
    super::{
        case::decided,
        plan::{Conduct, Plan},
        strict::Strict,
    },
    CAPACITY, Case, Fault, Inner, Request, Subject,
};

/// Each call gets its answer, and readiness may be asked for more than once.
pub(super) async fn answers<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(1))?;
    let mut service = case.service.clone();
    for _ in 0..CAPACITY {
        case.ready(&mut service).await?;
        if !matches!(poll_ready(&mut service), Poll::Ready(Ok(()))) {
            return case.fault(
                "`poll_ready` took its word back: once ready, an instance stays ready until it is called",
            );
        }
        case.call(&mut service).await?;
        case.forgotten().await?;
    }
    drop(service);
    case.end().await
}

/// A clone of a ready instance is not ready, and neither one disturbs the other.
pub(super) async fn clones<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(CAPACITY))?;
    let mut first = case.service.clone();
    case.ready(&mut first).await?;
    let mut second = first.clone();
    // A layer that runs one at a time keeps the second waiting for the first.
    let early = Strict::new(poll_fn(|cx| second.poll_ready(cx))).soon().await.is_some();
    let early = match early {
        true => Some(case.send(&mut second)),
        false => None,
    };
    let alone = early.is_none();
    let sent = [Some(case.send(&mut first)), early];
    case.good_responses(sent.into_iter().flatten()).await?;
    if alone {
        case.call(&mut second).await?;
    }
    drop((first, second));
    case.end().await
}

/// The inner service is busy at first.
pub(super) async fn late_readiness<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(1))?;
    let mut service = case.service.clone();
    let occupied = case.plan.occupy();
    {
        let mut call = Strict::new(async {
            case.ready(&mut service).await?;
            let sent = case.send(&mut service);
            case.good_response(sent).await
        });
        match call.soon().await {
            None => {}
            Some(Err(fault)) => return Err(fault),
            Some(Ok(())) => {
                return case.fault("it answered by itself, while the inner service was busy");
            }
        }
        drop(occupied);
        match call.outcome().await {
            Some(called) => called?,
            None => return case.fault("it was not woken when the inner service became ready"),
        }
    }
    drop(service);
    case.end().await
}

/// The inner service answers late.
pub(super) async fn late_responses<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::gated(CAPACITY))?;
    let mut service = case.service.clone();
    case.ready(&mut service).await?;
    let mut response = case.send(&mut service);
    if response.soon().await.is_some() {
        return case.fault("it answered by itself, before the inner service did");
    }
    case.plan.open();
    match response.outcome().await {
        Some(Ok(Ok(_))) => {}
        Some(Ok(Err(_))) => {
            return case.fault("a response was an error, and the inner service had answered well");
        }
        Some(Err(_)) => return case.fault("a call panicked, and the inner service had not"),
        None => return case.fault("a response was not woken when the inner service had answered"),
    }
    drop(service);
    case.end().await
}

/// What is given back by the inner service is not lost on the way.
pub(super) async fn releases<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(1))?;
    case.plan.conduct(Conduct::Answers(Outcome::Release));
    let mut service = case.service.clone();
    case.ready(&mut service).await?;
    let sent = case.send(&mut service);
    let Ok(response) = case.response(sent).await? else {
        return case.fault("a response was an error, and the inner service had answered well");
    };
    // A settle layer may have acked before, if its user chose so.
    let chosen = case.is_settled();
    if !chosen && let Some(Outcome::Ack | Outcome::Reject { .. }) = decided(&response) {
        return case
            .fault("it changed the decision: the inner service had released, and the message is lost");
    }
    drop((service, response));
    case.end().await
}

pub(super) fn poll_ready<R, S: Service<R>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}
