//! Gathers messages. Clones share what is open, and a batch never mixes owners of turns.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tower::{Layer, Service, ServiceExt};
use tower_mq::{Batch, BoxError, ClosedBy, IntoAnswer, Message, Outcome, Outcomes, SharedError};

#[derive(Clone, Debug)]
pub struct BatchLayer {
    size: usize,
    wait: Duration,
}

impl BatchLayer {
    pub const fn new(size: usize) -> Self {
        Self { size, wait: Duration::from_millis(10) }
    }
}

impl<S> Layer<S> for BatchLayer {
    type Service = Batcher<S>;

    fn layer(&self, inner: S) -> Batcher<S> {
        Batcher { inner, settings: self.clone(), owners: Arc::default() }
    }
}

#[derive(Clone, Debug)]
pub struct Batcher<S> {
    inner: S,
    settings: BatchLayer,
    owners: Arc<Mutex<HashMap<usize, mpsc::UnboundedSender<Member>>>>,
}

type Member = (Message, oneshot::Sender<Result<Outcome, BoxError>>);

impl<S> Service<Message> for Batcher<S>
where
    S: Service<Batch<Message>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: IntoAnswer<Batch<Message>> + Send,
    S::Error: Into<BoxError>,
{
    type Response = Outcome;
    type Error = BoxError;
    type Future = BatchFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: Message) -> BatchFuture {
        let (answers, answer) = oneshot::channel();
        let turn = message.turn().clone();
        let mut owners = self.owners.lock();
        let members = owners.entry(turn.owner()).or_insert_with(|| {
            let (members, gathered) = mpsc::unbounded_channel();
            tokio::spawn(gather(self.inner.clone(), gathered, self.settings.clone()));
            members
        });
        // A member that cannot be sent is dropped, and its answer with it.
        let _ = members.send((message, answers));
        turn.pass();
        BatchFuture(answer)
    }
}

async fn gather<S>(mut service: S, mut gathered: mpsc::UnboundedReceiver<Member>, settings: BatchLayer)
where
    S: Service<Batch<Message>>,
    S::Response: IntoAnswer<Batch<Message>>,
    S::Error: Into<BoxError>,
{
    while let Some((message, answer)) = gathered.recv().await {
        let (mut messages, mut answers) = (vec![message], vec![answer]);
        let until = Instant::now() + settings.wait;
        while messages.len() < settings.size {
            let Ok(Some((message, answer))) = tokio::time::timeout_at(until, gathered.recv()).await else {
                break;
            };
            messages.push(message);
            answers.push(answer);
        }
        let closed_by = if messages.len() == settings.size { ClosedBy::Size } else { ClosedBy::Wait };
        // Boxed before the next await, so that the service's error need not be `Send`.
        let ready = service.ready().await.map(drop).map_err(Into::into);
        let answer = match ready {
            Ok(()) => service.call(Batch::new(messages, closed_by)).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        tell(answer.and_then(IntoAnswer::into_answer), answers);
    }
}

fn tell(answer: Result<Outcomes, BoxError>, members: Vec<oneshot::Sender<Result<Outcome, BoxError>>>) {
    let answer = match answer {
        Ok(Outcomes::Each(results)) if results.len() == members.len() => {
            // Whoever does not want the answer any more does not get it.
            members.into_iter().zip(results).for_each(|(member, result)| drop(member.send(result)));
            return;
        }
        Ok(Outcomes::All(outcome)) => Ok(outcome),
        Ok(Outcomes::Each(_)) => Err(SharedError::from(BoxError::from("not one result for each member"))),
        Err(error) => Err(SharedError::from(error)),
    };
    for member in members {
        let _ = member.send(answer.clone().map_err(Into::into));
    }
}

#[derive(Debug)]
pub struct BatchFuture(oneshot::Receiver<Result<Outcome, BoxError>>);

impl Future for BatchFuture {
    type Output = Result<Outcome, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|gone| Err(gone.into())))
    }
}
