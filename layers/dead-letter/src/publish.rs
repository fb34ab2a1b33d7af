//! Publishes the copy until it is confirmed, or given up.

use std::{borrow::Cow, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use tokio::time::sleep;
use tower_mq_delivery::{BoxError, Event, Message, Outcome, Publication, Receipt};
use tower_service::Service;

use crate::{
    attempt::{Failed, attempt, caught},
    copy::copy,
    service::Shared,
};

/// What becomes of a rejected message: [`Outcome::Ack`] when a copy of it is confirmed, else [`Outcome::Release`].
pub(crate) async fn publish<P>(shared: Arc<Shared<P>>, message: Message, reason: Cow<'static, str>) -> Outcome
where
    P: Service<Publication, Response = Receipt, Future: Send> + Clone + Send + 'static,
    P::Error: Into<BoxError>,
{
    let settings = &shared.settings;
    // All tries publish the same.
    let mut composed = None;
    let (mut failed, mut unknown) = (0, 0);
    loop {
        let copied = match &composed {
            Some(copy) => Ok(Publication::clone(copy)),
            None => caught(&message, || copy(settings, &message, &reason))
                .map(|copy| composed.insert(copy).clone()),
        };
        let result = match copied {
            Ok(copy) => attempt(&shared, &message, copy).await,
            Err(panic) => Err(Failed::before(panic)),
        };
        let Failed { error, may_be_stored } = match result {
            Ok(_receipt) => {
                let (destination, attempt) = (message.destination(), message.attempt());
                tracing::warn!(%destination, attempt, %reason, "a message was rejected, and its copy is with the dead letters");
                message.set_dead_lettered();
                message.origin().report(&Event::DeadLettered { message: &message, reason: &reason });
                return Outcome::Ack;
            }
            Err(failed) => failed,
        };
        failed += 1;
        unknown += u32::from(may_be_stored);
        let last = failed >= settings.attempts || unknown > settings.duplicates || message.is_stale();
        if last {
            given_up(&message, failed, &error);
        } else {
            tracing::warn!(destination = %message.destination(), failed, error = &*error, "the copy of a rejected message is not confirmed, and is published again");
            message.origin().report(&Event::NotDeadLettered {
                message: &message,
                error: &error,
                given_up: false,
            });
        }
        // The last one, too: what is released comes again at once.
        let rested = pause(&message, settings.backoff.pause(failed)).await;
        if last {
            return Outcome::Release;
        }
        if !rested {
            given_up(&message, failed, &error);
            return Outcome::Release;
        }
    }
}

#[cold]
fn given_up(message: &Message, failed: u32, error: &BoxError) {
    let destination = message.destination();
    match message.is_stale() {
        true => {
            tracing::debug!(%destination, failed, error = &**error, "a rejected message has no confirmed copy, and belongs to the broker again")
        }
        false => {
            tracing::error!(%destination, failed, error = &**error, "a rejected message has no confirmed copy, and is released")
        }
    }
    message.origin().report(&Event::NotDeadLettered { message, error, given_up: true });
}

/// `false`: there is no time for a pause any more.
async fn pause(message: &Message, pause: Duration) -> bool {
    let (origin, generation) = (message.origin(), message.generation());
    let (mut draining, mut over) = (pin!(origin.draining()), pin!(generation.over()));
    let mut pause = pin!(sleep(pause));
    poll_fn(|cx| {
        if draining.as_mut().poll(cx).is_ready() || over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        pause.as_mut().poll(cx).map(|()| true)
    })
    .await
}
