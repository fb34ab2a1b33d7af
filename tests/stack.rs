//! The whole stack: every layer in its place, those of tower between them, composed without naming a type. Whatever
//! the stack, each delivery is settled once, with the same outcome.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use futures_util::stream;
use parking_lot::Mutex;
use tower::{
    Service, ServiceBuilder, ServiceExt,
    buffer::BufferLayer,
    limit::ConcurrencyLimitLayer,
    retry::Policy,
    service_fn,
    spawn_ready::SpawnReadyLayer,
    timeout::TimeoutLayer,
    util::{BoxCloneService, BoxCloneSyncService, BoxService},
};
use tower_mq::{
    Acker, AnswerLayer, Attempt, Backoff, Batch, BatchLayer, BoxError, BreakerLayer, DeadLetterLayer,
    DedupLayer, Delivery, ErrorPolicy, Failure, FailureExt, FromMessage, Key, LaneKey, Message, MetricsLayer,
    Outcome, PartitionLayer, Publication, Receipt, Rejection, RetryLayer, Settle, SettleLayer, Settled,
    Settlement, Settling, Token, TraceLayer, handler, serve, source::from_stream,
};

/// What is asked of a handler, and what the broker must hear of it.
const SCRIPT: [(&[u8], &str); 5] = [
    (b"work", "ack"),
    (b"fail once", "ack"),
    (b"give back", "release"),
    (b"refuse", "reject"),
    (b"\xff", "reject"),
];
const DELIVERIES: usize = 40;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn retry() -> RetryLayer {
    RetryLayer::in_place(Backoff::exponential(ms(10), ms(1_000))).attempts(3)
}

/// The broker's side: hands out the script, over and over, and hears the outcomes.
#[derive(Clone, Default)]
struct Queue {
    outcomes: Arc<Mutex<BTreeMap<Token, Vec<&'static str>>>>,
    dead: Arc<Mutex<Vec<Message>>>,
}

impl Settle for Queue {
    fn settle(&self, token: Token, outcome: Outcome) -> Settling {
        self.outcomes.lock().entry(token).or_default().push(outcome.name());
        Settling::done(Ok(Settlement::Confirmed))
    }

    fn dropped(&self, token: Token) -> Settling {
        self.outcomes.lock().entry(token).or_default().push("dropped");
        Settling::done(Ok(Settlement::Confirmed))
    }
}

impl Queue {
    fn deliveries(&self) -> Vec<Delivery> {
        let settle: Arc<dyn Settle> = Arc::new(self.clone());
        let deliver = |(number, (payload, _)): (usize, (&'static [u8], &str))| {
            let key = (number % 4 > 0).then(|| format!("key-{}", number % 4));
            let message = Message::builder(payload).maybe_key(key).id(number.to_string()).attempt(1).build();
            Delivery::new(message, Acker::new(settle.clone(), number as Token))
        };
        SCRIPT.into_iter().cycle().take(DELIVERIES).enumerate().map(deliver).collect()
    }

    /// Where dead letters go.
    fn publisher(
        &self,
    ) -> impl Service<Publication, Response = Receipt, Error = io::Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let dead = self.dead.clone();
        service_fn(move |copy: Publication| {
            dead.lock().push(copy.message);
            async { Ok(Receipt::new()) }
        })
    }

    async fn serve<S>(&self, stack: S)
    where
        S: Service<Delivery, Error: Into<BoxError>, Future: Send> + Send,
    {
        let report = serve(from_stream(stream::iter(self.deliveries())), stack).await.expect("served");
        assert_eq!((report.counts.taken as usize, report.counts.open()), (DELIVERIES, 0));
    }

    /// Each delivery was settled once, as the script says; `Some`: instead of rejecting it the stack publishes a copy.
    fn check(&self, dead_letters: bool) {
        let outcomes = std::mem::take(&mut *self.outcomes.lock());
        assert_eq!(outcomes.len(), DELIVERIES);
        for (token, outcomes) in outcomes {
            let (payload, expected) = SCRIPT[token as usize % SCRIPT.len()];
            let expected = if dead_letters && expected == "reject" { "ack" } else { expected };
            assert_eq!(outcomes, [expected], "delivery {token}, {payload:?}");
        }
        let rejected =
            SCRIPT.iter().filter(|(_, outcome)| *outcome == "reject").count() * DELIVERIES / SCRIPT.len();
        let dead = std::mem::take(&mut *self.dead.lock());
        assert_eq!(dead.len(), if dead_letters { rejected } else { 0 });
    }
}

/// A part of the script, with the try that it is.
#[derive(Debug)]
struct Part {
    text: String,
    tries: u32,
}

impl FromMessage for Part {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        Ok(Self { text: String::from_message(message)?, tries: message.tries() })
    }
}

impl Part {
    fn play(&self) -> Result<(), BoxError> {
        match &*self.text {
            "fail once" if self.tries == 1 => Err(io::Error::other("not yet").into()),
            "give back" => Err(Failure::release("not mine").into()),
            "refuse" => Ok("refuse".parse::<u32>().map(drop).or_reject()?),
            _ => Ok(()),
        }
    }
}

async fn play(part: Part, _: Key, _: Attempt) -> Result<(), BoxError> {
    tokio::time::sleep(ms(3)).await;
    part.play()
}

async fn play_all(parts: Batch<Part>) -> Vec<Result<(), BoxError>> {
    tokio::time::sleep(ms(3)).await;
    parts.iter().map(Part::play).collect()
}

#[tokio::test(start_paused = true)]
async fn the_canonical_stack() {
    let queue = Queue::default();
    let stack = ServiceBuilder::new()
        .layer(MetricsLayer::delivery())
        .layer(TraceLayer::new())
        .layer(BreakerLayer::new())
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(DedupLayer::in_memory())
        .layer(DeadLetterLayer::new(queue.publisher()))
        .layer(retry())
        .layer(ConcurrencyLimitLayer::new(4))
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .layer(MetricsLayer::process())
        .service(handler(play));
    queue.serve(stack).await;
    queue.check(true);
}

#[tokio::test(start_paused = true)]
async fn the_canonical_stack_with_batches() {
    let (queue, largest) = (Queue::default(), Arc::new(Mutex::new(0)));
    let seen = largest.clone();
    let stack = ServiceBuilder::new()
        .layer(MetricsLayer::delivery())
        .layer(TraceLayer::new())
        .layer(BreakerLayer::new())
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(DedupLayer::in_memory())
        .layer(DeadLetterLayer::new(queue.publisher()))
        .layer(BatchLayer::new(3))
        .layer(retry())
        .layer(ConcurrencyLimitLayer::new(4))
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .layer(MetricsLayer::process())
        .service(handler(move |parts: Batch<Part>| {
            let mut largest = seen.lock();
            *largest = parts.len().max(*largest);
            play_all(parts)
        }));
    queue.serve(stack).await;
    queue.check(true);
    assert_eq!(*largest.lock(), 3, "clones that Dedup makes gather into the same batch");
}

#[tokio::test(start_paused = true)]
async fn the_canonical_stack_with_services_of_other_types() {
    // The handler's place is open to any service: its own response, its own error.
    let queue = Queue::default();
    let stack = ServiceBuilder::new()
        .layer(MetricsLayer::delivery())
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(DedupLayer::in_memory())
        .layer(DeadLetterLayer::new(queue.publisher().boxed_clone()))
        .layer(retry())
        .service_fn(|message: Message| async move {
            match Part::from_message(&message) {
                Ok(part) => part.play().map_err(Wrapped),
                Err(rejection) => Err(Wrapped(rejection.into())),
            }
        });
    queue.serve(stack).await;
    queue.check(true);

    let stack = ServiceBuilder::new()
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(BatchLayer::new(4))
        .layer(retry())
        .service_fn(|batch: Batch<Message>| async move {
            let play = |message: &Message| Part::from_message(message).map_err(BoxError::from)?.play();
            Ok::<_, Wrapped>(batch.iter().map(play).collect::<Vec<_>>())
        });
    queue.serve(stack).await;
    queue.check(false);
}

#[derive(Debug, thiserror::Error)]
#[error("while playing")]
struct Wrapped(#[source] BoxError);

#[tokio::test(start_paused = true)]
async fn towers_own_layers_fit_everywhere() {
    let queue = Queue::default();
    let stack = ServiceBuilder::new()
        .layer(BufferLayer::new(64))
        .layer(SpawnReadyLayer::new())
        .load_shed()
        .rate_limit(1_000, ms(10))
        .timeout(Duration::from_secs(60))
        .filter(|delivery: Delivery| Ok::<_, BoxError>(delivery))
        .filter_async(|delivery: Delivery| async { Ok::<_, BoxError>(delivery) })
        .option_layer(Some(TimeoutLayer::new(Duration::from_secs(60))))
        .layer(BoxCloneService::layer())
        .layer(PartitionLayer::by_key(8).with(|message: &Message| match message.header("tenant") {
            Some(tenant) => LaneKey::of(tenant.as_str().unwrap_or_default()),
            None => LaneKey::of("nobody"),
        }))
        .layer(BoxCloneService::layer())
        .map_response(|settled: Settled| settled)
        .layer(SettleLayer::new())
        .layer(BoxCloneSyncService::layer())
        .option_layer(Some(DedupLayer::in_memory()))
        .option_layer(None::<DedupLayer>)
        .option_layer(Some(DeadLetterLayer::new(queue.publisher())))
        .layer(BufferLayer::new(8))
        .rate_limit(100, ms(1))
        .layer(BufferLayer::new(8))
        .concurrency_limit(8)
        .filter(|message: Message| Ok::<_, BoxError>(message))
        .option_layer(Some(retry()))
        .retry(Never)
        .timeout(Duration::from_secs(5))
        .layer(MetricsLayer::process())
        .then(|result: Result<Outcome, BoxError>| async { result })
        .and_then(|outcome: Outcome| async { Ok::<_, BoxError>(outcome) })
        .map_result(|result: Result<Outcome, BoxError>| result)
        .map_err(BoxError::from)
        .check_clone()
        .service(handler(play));
    queue.serve(stack).await;
    queue.check(true);
}

#[derive(Clone)]
struct Never;

impl<T, E> Policy<Message, T, E> for Never {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Message, _: &mut Result<T, E>) -> Option<Self::Future> {
        None
    }

    fn clone_request(&mut self, message: &Message) -> Option<Message> {
        Some(message.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn layers_are_optional_and_raw_services_under_them_are_brought_to_the_currency() {
    let queue = Queue::default();
    let stack = ServiceBuilder::new()
        .option_layer(Some(PartitionLayer::by_key(4)))
        .layer(SettleLayer::new())
        .layer(BatchLayer::new(4))
        .option_layer(Some(TimeoutLayer::new(ms(100))))
        .option_layer(Some(retry()))
        .layer(BoxCloneService::layer())
        .service(handler(play_all));
    queue.serve(stack).await;
    queue.check(false);

    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .option_layer(Some(retry()))
        .layer(AnswerLayer)
        .service_fn(|message: Message| async move {
            Part::from_message(&message).map_err(BoxError::from)?.play()
        });
    queue.serve(stack).await;
    queue.check(false);
}

#[tokio::test(start_paused = true)]
async fn partition_stands_inside_settle_too() {
    let queue = Queue::default();
    let stack = ServiceBuilder::new()
        .layer(SettleLayer::new())
        .layer(PartitionLayer::by_key(4))
        .layer(retry())
        .service(handler(play));
    queue.serve(stack).await;
    queue.check(false);
}

#[tokio::test(start_paused = true)]
async fn a_stack_is_kept_in_fields_boxed_and_served_from_a_task() {
    struct Config {
        partition: PartitionLayer<Delivery>,
        settle: SettleLayer,
        retry: RetryLayer,
    }
    let queue = Queue::default();
    let config = Config {
        partition: PartitionLayer::by_key(4),
        settle: SettleLayer::new()
            .on_error(ErrorPolicy::from_fn(|_, error| Outcome::reject(error.to_string()))),
        retry: retry(),
    };
    let stack: BoxService<Delivery, Settled, BoxError> = ServiceBuilder::new()
        .layer(config.partition.clone())
        .layer(config.settle)
        .layer(config.retry)
        .service(handler(play))
        .boxed();
    let run = serve(from_stream(stream::iter(queue.deliveries())), stack)
        .with_graceful_shutdown(std::future::pending::<io::Result<()>>());
    tokio::spawn(run).await.expect("joined").expect("served");
    queue.check(false);
}

#[tokio::test]
async fn a_stack_stands_over_a_mock_as_over_a_handler() {
    let queue = Queue::default();
    let (service, mut handle) = tower_test::mock::pair();
    let stack = ServiceBuilder::new()
        .layer(MetricsLayer::delivery())
        .layer(PartitionLayer::by_key(8))
        .layer(SettleLayer::new())
        .layer(DeadLetterLayer::new(queue.publisher()))
        .layer(retry())
        .service(service);
    let run = tokio::spawn(serve(from_stream(stream::iter(queue.deliveries())), stack));
    for _ in 0..DELIVERIES {
        let (message, answer) = handle.next_request().await.expect("handled");
        let _: Message = message;
        answer.send_response(Outcome::Ack);
    }
    run.await.expect("joined").expect("served");
    assert!(queue.outcomes.lock().values().all(|outcomes| *outcomes == ["ack"]));
}
