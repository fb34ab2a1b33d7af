//! Calls that come to no good end.

use std::future::poll_fn;

use tower_layer::Layer;
use tower_mq_delivery::{Drain, Outcome};
use tower_service::Service;

use super::{
    super::{
        case::{Odd, decided},
        plan::{Conduct, Plan},
        strict::Strict,
    },
    CAPACITY, Case, Fault, Inner, Request, Subject,
};

/// As many calls as it may take until each part of a layer has seen that the service is gone.
const SOME: usize = 64;

/// The inner service answers with an error, and then well.
pub(super) async fn errors<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(1))?;
    let mut service = case.service.clone();
    case.plan.conduct(Conduct::Fails);
    for _ in 0..CAPACITY {
        case.ready(&mut service).await?;
        let sent = case.send(&mut service);
        let response = case.response(sent).await?;
        // A layer may make something good of it. A settle layer may have acked before, if its user chose so.
        let acked = response.is_ok_and(|response| decided(&response) == Some(Outcome::Ack));
        if acked && !case.is_settled() {
            return case.fault("it made an ack of an error: the message is lost");
        }
    }
    case.forgotten().await?;
    case.plan.conduct(Conduct::Answers(Outcome::Ack));
    case.call(&mut service).await?;
    drop(service);
    case.end().await
}

/// The inner service says that it will never be ready again.
pub(super) async fn broken<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(CAPACITY))?;
    let mut service = case.service.clone();
    case.call(&mut service).await?;
    case.plan.fail_for_good();
    let mut told = false;
    for _ in 0..SOME {
        match Strict::new(poll_fn(|cx| service.poll_ready(cx))).outcome().await {
            Some(Ok(())) => {
                let sent = case.send(&mut service);
                drop(case.response(sent).await?);
            }
            Some(Err(_)) => {
                told = true;
                break;
            }
            None => return case.fault("it waits for an inner service that will never be ready"),
        }
    }
    if !told {
        return case.fault("`poll_ready` does not say that the inner service has failed: nobody will stop");
    }
    drop(service);
    case.end().await
}

/// What comes too late.
fn late(number: u64) -> Odd {
    Odd {
        key: Some(number.to_be_bytes().to_vec()),
        id: Some(format!("message-{number}")),
        attempt: Some(1),
        driver: Some(0),
    }
}

/// Messages come whose generation is over. A layer may call or not; somebody waits for the response.
pub(super) async fn stale<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(CAPACITY))?;
    let mut service = case.service.clone();
    case.generation.end();
    for _ in 0..CAPACITY {
        case.call_that_may_be_declined(&mut service, late(case.made())).await?;
    }
    drop(service);
    case.end().await
}

/// The generation of a message ends while its call is under way.
pub(super) async fn becomes_stale<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::gated(CAPACITY))?;
    let mut service = case.service.clone();
    case.ready(&mut service).await?;
    let mut sent = case.send(&mut service);
    let early = sent.soon().await;
    case.generation.end();
    if early.is_none() && sent.soon().await.is_none() {
        case.plan.open();
        let _response = case.response(sent).await?;
    }
    drop(service);
    case.end().await
}

/// Messages come when what was taken and has not started is to be released.
pub(super) async fn draining<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(CAPACITY))?;
    let mut service = case.service.clone();
    case.generation.origin().start_drain(Drain::Release);
    for _ in 0..CAPACITY {
        case.call_that_may_be_declined(&mut service, late(case.made())).await?;
    }
    drop(service);
    case.end().await
}

/// The stack begins to drain while a layer waits on behalf of a message, if it does.
pub(super) async fn begins_to_drain<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(CAPACITY))?;
    let mut service = case.service.clone();
    case.plan.conduct(Conduct::Fails);
    case.ready(&mut service).await?;
    let mut sent = case.send(&mut service);
    if sent.soon().await.is_none() {
        case.generation.origin().start_drain(Drain::Finish);
        if sent.soon().await.is_none() {
            return case.fault("it waits by itself, and goes on though the stack is about to end");
        }
    }
    drop((sent, service));
    case.end().await
}
