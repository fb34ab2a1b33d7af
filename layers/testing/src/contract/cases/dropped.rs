//! Calls that are given up.

use tower_layer::Layer;

use super::{
    super::{
        plan::Plan,
        strict::{Strict, moment},
    },
    CAPACITY, Case, Fault, Inner, MANY, Request, Subject,
    calls::poll_ready,
};

/// When a call is given up.
#[derive(Clone, Copy)]
pub(super) enum Stage {
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
    pub(super) const ALL: [Self; 6] =
        [Self::Ready, Self::Waiting, Self::Unpolled, Self::Busy, Self::Polled, Self::Answered];

    pub(super) fn name(self) -> &'static str {
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
pub(super) async fn dropped<R, L>(layer: &L, stage: Stage) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(stage.name(), layer, Plan::gated(CAPACITY))?;
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
        let mut response = case.send(instance);
        match stage {
            Stage::Busy => {
                let _pending = response.poll_unasked();
                if round < CAPACITY {
                    // Time for tasks of the layer to get as far.
                    moment().await;
                }
                drop(response);
                drop(occupied);
            }
            Stage::Polled => drop(response.poll_unasked()),
            Stage::Answered => {
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
    case.forgotten().await?;
    for _ in 0..=CAPACITY {
        case.call(&mut service).await?;
    }
    drop(service);
    case.end().await
}
