//! The check takes layers that gather: messages outside, batches inside.

use std::{
    collections::HashMap,
    future::{pending, poll_fn},
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt, select_all};
use parking_lot::Mutex;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tower::{Service, ServiceExt, layer::layer_fn};
use tower_mq_delivery::{Batch, BoxError, Message, Outcome, Outcomes};
use tower_mq_testing::contract::{Inner, check, find_fault};

/// What may be wrong with it.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// It takes any number of messages, and passes the turn of each.
    Unbounded,
    /// What two drivers send goes into one batch.
    MixesOwners,
    /// When nobody waits any more, a batch of nobody is called.
    CallsEmpty,
    /// A batch that nobody waits for any more runs on.
    RunsOn,
    /// It waits for more, although no more will come.
    IgnoresDrain,
    /// A member that was answered is called once more.
    CallsAgain,
}

struct Member {
    message: Message,
    answer: oneshot::Sender<Result<Outcome, BoxError>>,
    _place: Option<OwnedSemaphorePermit>,
}

/// Gathers up to three messages for ten milliseconds, with a task for each owner of turns.
struct Gather {
    shared: Arc<Shared>,
    acquiring: Option<BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>>,
    place: Option<OwnedSemaphorePermit>,
}

struct Shared {
    inner: Mutex<Inner>,
    owners: Mutex<HashMap<usize, mpsc::UnboundedSender<Member>>>,
    places: Arc<Semaphore>,
    wrong: Wrong,
}

impl Gather {
    fn of(shared: Arc<Shared>) -> Self {
        Self { shared, acquiring: None, place: None }
    }
}

impl Clone for Gather {
    fn clone(&self) -> Self {
        Self::of(self.shared.clone())
    }
}

impl Service<Message> for Gather {
    type Response = Outcome;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Outcome, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.place.is_none() && self.shared.wrong != Wrong::Unbounded {
            let places = &self.shared.places;
            let acquiring = self.acquiring.get_or_insert_with(|| places.clone().acquire_owned().boxed());
            let place = ready!(acquiring.poll_unpin(cx));
            self.acquiring = None;
            // Closed: the inner service has failed.
            self.place = Some(place?);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: Message) -> Self::Future {
        let shared = &self.shared;
        let owner = if shared.wrong == Wrong::MixesOwners { 0 } else { message.turn().owner() };
        let turn = message.turn().clone();
        let (answer, answered) = oneshot::channel();
        let mut owners = shared.owners.lock();
        let members = owners.entry(owner).or_insert_with(|| {
            let (members, gathered) = mpsc::unbounded_channel();
            let (inner, places) = (shared.inner.lock().clone(), shared.places.clone());
            tokio::spawn(gather(inner, gathered, places, shared.wrong));
            members
        });
        // Those that cannot be sent are answered by their drop.
        let _ = members.send(Member { message, answer, _place: self.place.take() });
        turn.pass();
        async { answered.await.unwrap_or_else(|gone| Err(gone.into())) }.boxed()
    }
}

async fn gather(
    inner: Inner,
    mut gathered: mpsc::UnboundedReceiver<Member>,
    places: Arc<Semaphore>,
    wrong: Wrong,
) {
    while let Some(first) = gathered.recv().await {
        let until = Instant::now() + Duration::from_millis(10);
        let generation = first.message.generation().clone();
        let mut members = vec![first];
        while members.len() < 3 {
            tokio::select! {
                member = gathered.recv() => match member {
                    Some(member) => members.push(member),
                    None => break,
                },
                () = sleep_until(until) => break,
                () = generation.origin().draining(), if wrong != Wrong::IgnoresDrain => break,
            }
        }
        members.retain(|member| !member.answer.is_closed());
        if members.is_empty() && wrong != Wrong::CallsEmpty {
            continue;
        }
        let messages: Vec<_> = members.iter().map(|member| member.message.clone()).collect();
        let mut service = inner.clone();
        let batch = Batch::from(messages);
        let call = async {
            let service = ServiceExt::<Batch<Message>>::ready(&mut service)
                .await
                .inspect_err(|_: &BoxError| places.close())?;
            let again = (wrong == Wrong::CallsAgain).then(|| batch.clone());
            let answer = service.call(batch).await?;
            match again {
                Some(again) => ServiceExt::<Batch<Message>>::ready(service).await?.call(again).await,
                None => Ok(answer),
            }
        };
        let answer: Result<Outcomes, BoxError> = tokio::select! {
            answer = AssertUnwindSafe(call).catch_unwind() => {
                answer.unwrap_or_else(|_| Err("the inner service panicked".into()))
            }
            () = unwanted(&mut members), if wrong != Wrong::RunsOn => continue,
        };
        for member in members {
            let answer = match &answer {
                Ok(Outcomes::All(outcome)) => Ok(outcome.clone()),
                Ok(Outcomes::Each(_)) => Err("one for all was expected".into()),
                Err(error) => Err(error.to_string().into()),
            };
            let _ = member.answer.send(answer);
        }
    }
}

/// Waits until nobody waits for any of them.
async fn unwanted(members: &mut [Member]) {
    while members.iter().any(|member| !member.answer.is_closed()) {
        let open = members.iter_mut().filter(|member| !member.answer.is_closed());
        select_all(open.map(|member| poll_fn(|cx| member.answer.poll_closed(cx)).boxed())).await;
    }
    if members.is_empty() {
        pending::<()>().await;
    }
}

fn layer(wrong: Wrong) -> impl tower::Layer<Inner, Service = Gather> {
    layer_fn(move |inner| {
        Gather::of(Arc::new(Shared {
            inner: Mutex::new(inner),
            owners: Mutex::default(),
            places: Arc::new(Semaphore::new(12)),
            wrong,
        }))
    })
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_gathers_as_it_should_has_no_fault() {
    check::<Message, _>(layer(Wrong::Nothing)).await;
}

#[tokio::test(start_paused = true)]
async fn each_mistake_of_a_layer_that_gathers_is_found() {
    for (wrong, expected) in [
        (Wrong::Unbounded, "nothing bounds what waits in it"),
        (Wrong::MixesOwners, "different owners of turns"),
        (Wrong::CallsEmpty, "with an empty batch"),
        (Wrong::RunsOn, "keeps a reservation of the inner service that nobody needs"),
        (Wrong::IgnoresDrain, "goes on though the stack is about to end"),
        (Wrong::CallsAgain, "again with a message that was answered well"),
    ] {
        let fault = find_fault::<Message, _>(layer(wrong)).await.expect_err(expected).to_string();
        assert!(fault.contains(expected), "expected `{expected}`: {fault}");
    }
}
