//! More calls than there is room for.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    super::{
        case::Sent,
        plan::Plan,
        strict::{Strict, moment},
    },
    CAPACITY, Case, Fault, Inner, MANY, Request, Subject,
};

/// The layer is at its limit and instances wait; one place becomes free, then another. `unasked`: one of those who wait
/// is polled without having been woken, and may take what another was woken for.
pub(super) async fn waiters<R, L>(layer: &L, case: &'static str, unasked: bool) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::gated(CAPACITY))?;
    let mut open = Vec::new();
    loop {
        let mut service = case.service.clone();
        if Strict::new(poll_fn(|cx| service.poll_ready(cx))).soon().await.is_none() {
            break;
        }
        let mut response = case.send(&mut service);
        let _pending = response.poll_unasked();
        open.push(response);
        if open.len() == MANY {
            if open.iter().any(|sent| sent.get_ref().is_passed()) {
                return case
                    .fault("it passes the turn, and is ready all the same: nothing bounds what waits in it");
            }
            // No limit, or one that this check does not reach.
            drop((open, service));
            return case.end().await;
        }
    }
    let [leaver, first, second] = [(); 3].map(|()| case.service.clone());
    let [mut leaver, mut first, mut second] =
        [leaver, first, second].map(|service| Strict::new(readied(service)));
    for waits in [&mut leaver, &mut first, &mut second] {
        if waits.poll_unasked().is_ready() {
            return case.fault("it was at its limit, and ready again though nothing had ended");
        }
    }
    // The place may have been meant for the one who leaves.
    case.plan.let_one_through();
    finish_one(&mut open).await;
    drop(leaver);
    let mut ready = None;
    if unasked && let Poll::Ready(service) = second.poll_unasked() {
        ready = Some(service);
    }
    let (mut ready, mut last) = match (ready, first.soon().await) {
        (Some(ready), None) => (ready, first),
        (None, Some(ready)) => (ready, second),
        (None, None) => match second.soon().await {
            Some(ready) => (ready, first),
            None => return case.fault("a place became free, and none of those who wait was woken"),
        },
        // More than one place became free.
        (Some(ready), Some(other)) => {
            drop((ready, other, second));
            return finish(case, open).await;
        }
    };
    let mut response = case.send(&mut ready);
    let _pending = response.poll_unasked();
    open.push(response);
    case.plan.let_one_through();
    finish_one(&mut open).await;
    if last.soon().await.is_none() {
        return case.fault("a second place became free, and the one who still waits was not woken");
    }
    drop((ready, last));
    finish(case, open).await
}

/// Gives up all that is open; then one more call must come through.
async fn finish<R, S>(case: Case<R, S>, open: Vec<Sent<S::Future>>) -> Result<(), Fault>
where
    R: Request,
    S: Subject<R>,
{
    case.plan.open();
    drop(open);
    let mut service = case.service.clone();
    case.call(&mut service).await?;
    drop(service);
    case.end().await
}

/// An instance, once it is ready: also to fail.
async fn readied<R, S: Service<R>>(mut service: S) -> S {
    // Whatever comes of it is seen in the call.
    let _ready = poll_fn(|cx| service.poll_ready(cx)).await;
    service
}

/// Polls the open responses until one has ended, as their callers would.
async fn finish_one<F: Future>(open: &mut Vec<Strict<F>>) {
    moment().await;
    let mut cx = Context::from_waker(Waker::noop());
    let ended = open.iter_mut().position(|response| std::pin::Pin::new(response).poll(&mut cx).is_ready());
    if let Some(ended) = ended {
        drop(open.remove(ended));
    }
}
