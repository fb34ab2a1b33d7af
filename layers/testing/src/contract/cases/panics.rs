//! The inner service panics.

use tower_layer::Layer;
use tower_mq_delivery::Outcome;

use super::{
    super::plan::{Conduct, Plan},
    CAPACITY, Case, Fault, Inner, Request, Subject,
};

/// The inner service panics, in `call` and when it runs, and then answers well. A layer may let the panic through; a
/// driver goes on with a clone then.
pub(super) async fn panics<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(1))?;
    for conduct in [Conduct::PanicsInCall, Conduct::PanicsInPoll] {
        case.plan.conduct(conduct);
        for _ in 0..CAPACITY {
            let mut service = case.service.clone();
            case.ready(&mut service).await?;
            let sent = case.send(&mut service);
            if sent.outcome().await.is_none() {
                return case.fault("a response never came: the panic was swallowed");
            }
        }
        case.plan.conduct(Conduct::Answers(Outcome::Ack));
        let mut service = case.service.clone();
        case.call(&mut service).await?;
    }
    case.forgotten().await?;
    case.end().await
}
