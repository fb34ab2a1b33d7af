//! The response of [`DeadLetter`](crate::DeadLetter).

use std::{
    borrow::Cow,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_mq_delivery::{
    BoxError, DynError, ErrorPolicy, IntoOutcome, Message, Outcome, Publication, Receipt,
};
use tower_service::Service;

use crate::{publish::publish, service::Shared};

/// The response of [`DeadLetter`](crate::DeadLetter). After its end it is never ready again.
///
/// # Cancel safety
/// Dropping it drops the inner future, or the copy that is being published, which may then be stored or not.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<F, P> {
    #[pin]
    stage: Stage<F>,
    message: Message,
    shared: Arc<Shared<P>>,
}

#[pin_project(project = StageProjection)]
enum Stage<F> {
    Running(#[pin] F),
    // Boxed, so that the many that are not rejected do not make room for it.
    Publishing(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    Over,
}

impl<F, P> ResponseFuture<F, P> {
    pub(crate) fn new(inner: F, message: Message, shared: Arc<Shared<P>>) -> Self {
        Self { stage: Stage::Running(inner), message, shared }
    }
}

impl<F, T, E, P> Future for ResponseFuture<F, P>
where
    F: Future<Output = Result<T, E>>,
    T: IntoOutcome,
    E: Into<BoxError>,
    P: Service<Publication, Response = Receipt, Future: Send> + Clone + Send + 'static,
    P::Error: Into<BoxError>,
{
    type Output = Result<Outcome, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let outcome = match this.stage.as_mut().project() {
                StageProjection::Running(inner) => {
                    let outcome = match ready!(inner.poll(cx)).map_err(Into::into).and_then(T::into_outcome) {
                        Ok(outcome) => outcome,
                        Err(error) => judge(this.message, &*error, this.shared.settings.policy.as_ref()),
                    };
                    match outcome {
                        Outcome::Reject { reason } => {
                            let publishing = rejected(this.shared.clone(), this.message.clone(), reason);
                            // What the handler holds is freed before anybody waits for a broker.
                            this.stage.set(Stage::Publishing(publishing));
                            continue;
                        }
                        outcome => outcome,
                    }
                }
                StageProjection::Publishing(publishing) => ready!(publishing.as_mut().poll(cx)),
                StageProjection::Over => return Poll::Pending,
            };
            this.stage.set(Stage::Over);
            return Poll::Ready(Ok(outcome));
        }
    }
}

#[cold]
fn rejected<P>(
    shared: Arc<Shared<P>>,
    message: Message,
    reason: Cow<'static, str>,
) -> Pin<Box<dyn Future<Output = Outcome> + Send>>
where
    P: Service<Publication, Response = Receipt, Future: Send> + Clone + Send + 'static,
    P::Error: Into<BoxError>,
{
    // A reject without an error is a failure, too.
    message.failed();
    Box::pin(publish(shared, message, reason))
}

/// The error goes no further. The payload is not logged; what the text of an error says is its author's choice.
#[cold]
fn judge(message: &Message, error: &DynError, policy: Option<&ErrorPolicy>) -> Outcome {
    let outcome = message.judge(error, policy);
    let (destination, attempt) = (message.destination(), message.attempt());
    match outcome {
        Outcome::Retry { .. } | Outcome::Release => {
            tracing::debug!(%destination, attempt, outcome = outcome.name(), %error, "a message was not handled and comes again");
        }
        // What becomes of it is said when it is known.
        Outcome::Reject { .. } => {
            tracing::debug!(%destination, attempt, %error, "a message was not handled and is rejected");
        }
        _ => {
            tracing::warn!(%destination, attempt, outcome = outcome.name(), %error, "a message was not handled and does not come again");
        }
    }
    outcome
}

impl<F, P> fmt::Debug for ResponseFuture<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Running(_) => "running",
            Stage::Publishing(_) => "publishing",
            Stage::Over => "over",
        };
        f.debug_struct("ResponseFuture")
            .field("message", &self.message)
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}
