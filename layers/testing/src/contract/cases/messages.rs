//! Messages that are not like all others.

use tower_layer::Layer;

use super::{
    super::{case::Odd, plan::Plan},
    CAPACITY, Case, Fault, Inner, Request, Subject,
};

/// Messages without key, id, attempt or driver, and with an empty key, are messages.
pub(super) async fn bare<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(1))?;
    let mut service = case.service.clone();
    for driver in [None, Some(0)] {
        for key in [None, Some(Vec::new())] {
            for _ in 0..2 {
                case.ready(&mut service).await?;
                let odd = Odd { key: key.clone(), id: None, attempt: None, driver };
                let (before, sent) = (case.plan.calls(), case.send_odd(&mut service, odd));
                case.good_response(sent).await?;
                if case.plan.calls() == before {
                    return case.fault("it answered by itself: nothing said that it had seen the message");
                }
            }
        }
    }
    case.forgotten().await?;
    drop(service);
    case.end().await
}

/// A message comes again, with the id that it had: a layer may know it, and not call.
pub(super) async fn twice<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(CAPACITY))?;
    let mut service = case.service.clone();
    for number in [1, 1, 2, 1] {
        let odd = Odd {
            key: Some(b"the same".to_vec()),
            id: Some(format!("known-{number}")),
            attempt: Some(1),
            driver: Some(0),
        };
        case.call_that_may_be_declined(&mut service, odd).await?;
    }
    case.forgotten().await?;
    drop(service);
    case.end().await
}

/// Two drivers share what is behind the clones.
pub(super) async fn of_two_drivers<R, L>(layer: &L, case: &'static str) -> Result<(), Fault>
where
    R: Request,
    L: Layer<Inner, Service: Subject<R>>,
{
    let case = Case::<R, _>::new(case, layer, Plan::new(CAPACITY))?;
    let mut services = [(); 2].map(|()| case.service.clone());
    for round in 0..CAPACITY {
        let calls = services.iter_mut().enumerate().map(|(driver, service)| {
            let odd = Odd {
                key: Some(b"the same".to_vec()),
                id: Some(format!("message-{round}-{driver}")),
                attempt: Some(1),
                driver: Some(driver),
            };
            case.call_odd(service, odd)
        });
        case.together(calls).await?;
    }
    drop(services);
    case.end().await
}
