mod arguments;
mod batch;
#[cfg(feature = "json")]
mod json;
mod panics;

use std::error::Error;

use tower::{Service, ServiceExt};
use tower_mq_delivery::{BoxError, Failure, Outcome, Work};

/// The answer of a handler.
async fn answer<S, W>(handler: S, work: impl Into<W>) -> Result<W::Answer, BoxError>
where
    W: Work,
    S: Service<W, Response = W::Answer, Error = BoxError>,
{
    handler.oneshot(work.into()).await
}

/// The reason of the reject that an error has decided.
fn reject(error: &BoxError) -> &str {
    match Failure::find(&**error) {
        Some(Outcome::Reject { reason }) => reason,
        other => panic!("not a reject: {other:?}"),
    }
}

/// Whether there is an `E` in the chain.
fn is_caused_by<E: Error + 'static>(error: &BoxError) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(&**error);
    while let Some(error) = next {
        if error.is::<E>() {
            return true;
        }
        next = error.source();
    }
    false
}
