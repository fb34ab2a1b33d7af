//! What happens to a service in a stack, played one after the other.

mod calls;
mod dropped;
mod ends;
mod messages;
mod panics;
mod waiters;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use tower_layer::Layer;

use super::{
    Fault,
    case::{Case, Subject},
    inner::Inner,
    request::Request,
};

/// The most calls that are opened to find a layer's limit, and how often a leak of one reservation is repeated. A
/// layer of ours has a limit of 1,024 unless it is told otherwise.
const MANY: usize = 2_000;

/// How many calls run at a time under a layer that has no limit of its own.
const CAPACITY: usize = 3;

pub(super) async fn all<R, L>(layer: &L) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = "calling one after the other";
    watched(case, calls::answers::<R, L>(layer, case)).await?;
    let case = "cloning a ready instance";
    watched(case, calls::clones::<R, L>(layer, case)).await?;
    let case = "the inner service becomes ready late";
    watched(case, calls::late_readiness::<R, L>(layer, case)).await?;
    let case = "the inner service answers late";
    watched(case, calls::late_responses::<R, L>(layer, case)).await?;
    let case = "the inner service releases";
    watched(case, calls::releases::<R, L>(layer, case)).await?;
    for stage in dropped::Stage::ALL {
        watched(stage.name(), dropped::dropped::<R, L>(layer, stage)).await?;
    }
    let case = "instances wait at the limit";
    watched(case, waiters::waiters::<R, L>(layer, case, false)).await?;
    watched(case, waiters::waiters::<R, L>(layer, case, true)).await?;
    let case = "messages lack key, id and attempt";
    watched(case, messages::bare::<R, L>(layer, case)).await?;
    let case = "a message comes twice";
    watched(case, messages::twice::<R, L>(layer, case)).await?;
    let case = "messages come from two drivers";
    watched(case, messages::of_two_drivers::<R, L>(layer, case)).await?;
    let case = "calls fail";
    watched(case, ends::errors::<R, L>(layer, case)).await?;
    let case = "the inner service fails for good";
    watched(case, ends::broken::<R, L>(layer, case)).await?;
    let case = "the generation of a message has ended";
    watched(case, ends::stale::<R, L>(layer, case)).await?;
    let case = "the generation of a message ends";
    watched(case, ends::becomes_stale::<R, L>(layer, case)).await?;
    let case = "the stack drains";
    watched(case, ends::draining::<R, L>(layer, case)).await?;
    let case = "the stack begins to drain";
    watched(case, ends::begins_to_drain::<R, L>(layer, case)).await?;
    let case = "the inner service panics";
    watched(case, panics::panics::<R, L>(layer, case)).await
}

/// A panic that nobody expects is a fault of the layer, too: in a drop, most often.
async fn watched(case: &'static str, played: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
    let mut played = pin!(played);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| played.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(_) => Poll::Ready(Err(Fault { case, what: "it panicked, and nobody else had" })),
    })
    .await
}
