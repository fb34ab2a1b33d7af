//! What happens to a service in a stack, played one after the other.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use tower_layer::Layer;
use tower_mq_delivery::BoxError;
use tower_service::Service;

use super::{
    Fault,
    case::Case,
    inner::{Inner, Plan},
    request::Request,
    strict::{Strict, moment},
};

/// The most calls that are opened to find a layer's limit, and how often a leak of one reservation is repeated. A
/// layer of ours has a limit of 1,024 unless it is told otherwise.
const MANY: usize = 2_000;

/// How many calls run at a time under a layer that has no limit of its own.
const CAPACITY: usize = 3;

pub(super) async fn all<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    answers::<R, L>(layer).await?;
    clones::<R, L>(layer).await?;
    late_readiness::<R, L>(layer).await?;
    late_responses::<R, L>(layer).await?;
    for stage in Stage::ALL {
        dropped::<R, L>(layer, stage).await?;
    }
    waiters::<R, L>(layer, false).await?;
    waiters::<R, L>(layer, true).await?;
    errors::<R, L>(layer).await?;
    broken::<R, L>(layer).await
}

/// Each call gets its answer, and readiness may be asked for more than once.
async fn answers<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new("calling one after the other", layer, Plan::new(1));
    let mut service = case.service.clone();
    for _ in 0..CAPACITY {
        case.ready(&mut service).await?;
        if !matches!(poll_ready(&mut service), Poll::Ready(Ok(()))) {
            return case.fault(
                "`poll_ready` took its word back: once ready, an instance stays ready until it is called",
            );
        }
        case.call(&mut service).await?;
    }
    drop(service);
    case.end().await
}

/// A clone of a ready instance is not ready, and neither one disturbs the other.
async fn clones<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new("cloning a ready instance", layer, Plan::new(CAPACITY));
    let mut first = case.service.clone();
    case.ready(&mut first).await?;
    let mut second = first.clone();
    // A layer that runs one at a time keeps the second waiting for the first.
    let early = Strict::new(poll_fn(|cx| second.poll_ready(cx))).soon().await.is_some();
    let early = match early {
        true => Some(second.call(case.request())),
        false => None,
    };
    let response = case.response(first.call(case.request())).await?;
    if response.is_err() {
        return case.fault("a response was an error, and the inner service had answered well");
    }
    match early {
        Some(early) => drop(case.response(early).await?),
        None => case.call(&mut second).await?,
    }
    drop((first, second));
    case.end().await
}

/// The inner service is busy at first.
async fn late_readiness<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new("the inner service becomes ready late", layer, Plan::new(1));
    let mut service = case.service.clone();
    let occupied = case.plan.occupy();
    {
        let request = case.request();
        let mut request = Some(request);
        let mut call = Strict::new(async {
            let ready = poll_fn(|cx| service.poll_ready(cx)).await;
            match (ready, request.take()) {
                (Ok(()), Some(request)) => service.call(request).await.is_ok(),
                _ => false,
            }
        });
        if call.soon().await.is_some() {
            return case.fault("it answered by itself, while the inner service was busy");
        }
        drop(occupied);
        match call.outcome().await {
            Some(true) => {}
            Some(false) => return case.fault("a call failed, and the inner service had answered well"),
            None => return case.fault("it was not woken when the inner service became ready"),
        }
    }
    drop(service);
    case.end().await
}

/// The inner service answers late.
async fn late_responses<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new("the inner service answers late", layer, Plan::gated(CAPACITY));
    let mut service = case.service.clone();
    case.ready(&mut service).await?;
    let mut response = Strict::new(service.call(case.request()));
    if response.soon().await.is_some() {
        return case.fault("it answered by itself, before the inner service did");
    }
    case.plan.open();
    match response.outcome().await {
        Some(Ok(_)) => {}
        Some(Err(_)) => {
            return case.fault("a response was an error, and the inner service had answered well");
        }
        None => return case.fault("a response was not woken when the inner service had answered"),
    }
    drop(service);
    case.end().await
}

/// When a call is given up.
#[derive(Clone, Copy)]
enum Stage {
    /// The instance is dropped when it is ready.
    Ready,
    /// It is dropped while it waits to be ready.
    Waiting,
    /// The response is dropped before it was polled,
    Unpolled,
    /// or when it was polled, and the inner service is busy,
    Busy,
    /// or when it was polled, and is pending,
    Polled,
    /// or when the inner service has answered, and nobody has looked.
    Answered,
}

impl Stage {
    const ALL: [Self; 6] =
        [Self::Ready, Self::Waiting, Self::Unpolled, Self::Busy, Self::Polled, Self::Answered];

    fn name(self) -> &'static str {
        match self {
            Self::Ready => "dropping instances that are ready",
            Self::Waiting => "dropping instances that wait to be ready",
            Self::Unpolled => "dropping responses that were not polled",
            Self::Busy => "dropping responses while the inner service is busy",
            Self::Polled => "dropping responses that are pending",
            Self::Answered => "dropping responses whose answer is there",
        }
    }
}

/// A call that is given up, at any stage and however often, leaves nothing behind.
async fn dropped<R, L>(layer: &L, stage: Stage) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new(stage.name(), layer, Plan::gated(CAPACITY));
    let mut service = case.service.clone();
    for round in 0..MANY {
        // By turns a clone that is dropped with its call, and the instance that lives on. An instance that is ready
        // and lives on may rightly keep others waiting.
        let mut clone = service.clone();
        let lives_on = round % 2 == 1 && !matches!(stage, Stage::Ready);
        let instance = if lives_on { &mut service } else { &mut clone };
        if let Stage::Waiting = stage {
            let occupied = case.plan.occupy();
            // Some are ready all the same: they take the call and wait with it.
            let _pending = poll_ready(&mut clone);
            drop(clone);
            drop(occupied);
            continue;
        }
        if let Stage::Busy = stage {
            case.idle().await?;
        }
        case.ready(instance).await?;
        if let Stage::Ready = stage {
            continue;
        }
        // Only under a layer that is ready without asking; the others hold a reservation now.
        let occupied = case.plan.occupy().filter(|_| matches!(stage, Stage::Busy));
        let response = instance.call(case.request());
        match stage {
            Stage::Busy => {
                let mut response = Strict::new(response);
                let _pending = response.poll_unasked();
                if round < CAPACITY {
                    // Time for tasks of the layer to get as far.
                    moment().await;
                }
                drop(response);
                drop(occupied);
            }
            Stage::Polled => drop(Strict::new(response).poll_unasked()),
            Stage::Answered => {
                let mut response = Strict::new(response);
                let first = response.poll_unasked();
                case.plan.let_one_through();
                if first.is_pending() {
                    tokio::task::yield_now().await;
                }
            }
            _ => drop(response),
        }
    }
    moment().await;
    case.plan.open();
    if Strict::new(case.plan.idle()).outcome().await.is_none() {
        return case
            .fault("it keeps a reservation of the inner service that nobody needs: others may starve");
    }
    for _ in 0..=CAPACITY {
        case.call(&mut service).await?;
    }
    drop(service);
    case.end().await
}

/// The layer is at its limit and instances wait; one place becomes free, then another. `unasked`: one of those who wait
/// is polled without having been woken, and may take what another was woken for.
async fn waiters<R, L>(layer: &L, unasked: bool) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new("instances wait at the limit", layer, Plan::gated(CAPACITY));
    let mut open = Vec::new();
    loop {
        let mut service = case.service.clone();
        if Strict::new(poll_fn(|cx| service.poll_ready(cx))).soon().await.is_none() {
            break;
        }
        let mut response = Strict::new(service.call(case.request()));
        let _pending = response.poll_unasked();
        open.push(response);
        if open.len() == MANY {
            // No limit, or one that this check does not reach.
            drop(open);
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
        (Some(_), Some(_)) => return finish(case, open).await,
    };
    let mut response = Strict::new(ready.call(case.request()));
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
async fn finish<R, S>(case: Case<R, S>, open: Vec<Strict<S::Future>>) -> Result<(), Fault>
where
    R: Request,
    S: Service<R> + Clone,
    S::Error: Into<BoxError>,
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

/// The inner service answers with an error, and then well.
async fn errors<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new("calls fail", layer, Plan::new(1));
    let mut service = case.service.clone();
    case.plan.set_failing(true);
    for _ in 0..CAPACITY {
        case.ready(&mut service).await?;
        // A layer may make something good of it.
        let _response = case.response(service.call(case.request())).await?;
    }
    case.plan.set_failing(false);
    case.call(&mut service).await?;
    drop(service);
    case.end().await
}

/// The inner service says that it will never be ready again.
async fn broken<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner>,
    L::Service: Service<R> + Clone,
    <L::Service as Service<R>>::Error: Into<BoxError>,
{
    let case = Case::<R, _>::new("the inner service fails for good", layer, Plan::new(CAPACITY));
    let mut service = case.service.clone();
    case.call(&mut service).await?;
    case.plan.fail_for_good();
    for _ in 0..CAPACITY {
        match Strict::new(poll_fn(|cx| service.poll_ready(cx))).outcome().await {
            Some(Ok(())) => drop(case.response(service.call(case.request())).await?),
            Some(Err(_)) => break,
            None => return case.fault("it waits for an inner service that will never be ready"),
        }
    }
    drop(service);
    case.end().await
}

fn poll_ready<R, S: Service<R>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}
