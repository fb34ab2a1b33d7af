//! What the members are told.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake},
};

use tower::{Layer, Service, ServiceExt, service_fn};
use tower_mq_delivery::{
    Batch, BoxError, Failure, Message, Outcome, Outcomes, Panicked, SharedError, WrongLength,
};
use tower_mq_testing::gate;

use super::{Answer, Queue, answered, join, ms, rest};
use crate::{BatchLayer, Closed, NoRuntime};

/// The answers to three members, whose batch is answered so.
async fn answers<T>(answer: impl Fn() -> T + Clone + Send + 'static) -> Vec<Result<String, BoxError>>
where
    T: tower_mq_delivery::IntoAnswer<Batch<Message>> + Send + 'static,
{
    let handler = service_fn(move |_: Batch<Message>| {
        let answer = answer.clone();
        async move { Ok::<_, BoxError>(answer()) }
    });
    let (mut service, lane) = (BatchLayer::new(3).layer(handler), Queue::new(256).lane());
    let mut members = Vec::new();
    for n in 0..3 {
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    rest().await;
    assert!(service.owners().holds_nothing());
    members.iter_mut().map(answered).collect()
}

#[tokio::test(start_paused = true)]
async fn one_outcome_is_that_of_all() {
    for answer in answers(|| Outcome::Release).await {
        assert_eq!(answer.expect("decided"), "release");
    }
    for answer in answers(|| ()).await {
        assert_eq!(answer.expect("decided"), "ack");
    }
}

#[tokio::test(start_paused = true)]
async fn one_failed_member_leaves_the_outcomes_of_the_others_alone() {
    let each = || vec![Ok(Outcome::Ack), Err(BoxError::from("the second")), Ok(Outcome::reject("no"))];
    let answers = answers(each).await;
    assert_eq!(answers[0].as_ref().expect("handled"), "ack");
    assert_eq!(answers[1].as_ref().expect_err("failed").to_string(), "the second");
    assert_eq!(answers[2].as_ref().expect("handled"), "reject");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_length_fails_every_member_and_names_both_numbers() {
    for results in [0, 2, 4] {
        for answer in answers(move || vec![(); results]).await {
            let error = answer.expect_err("nobody knows whose result is whose");
            let wrong = error.downcast_ref::<WrongLength>().expect("an error of ours");
            assert_eq!((wrong.members, wrong.results), (3, results));
            let text = error.to_string();
            assert!(text.contains("3 members") && text.contains(&format!("{results} results")), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_fails_its_members_and_no_others_and_its_decision_is_found() {
    let (handler, gate) = gate();
    let (mut service, lane) = (BatchLayer::new(2).layer(handler), Queue::new(256).lane());
    let mut members = Vec::new();
    for n in 0..4 {
        members.push(join(&mut service, lane.message(n.to_string())).await);
    }
    gate.next().await.fail(Failure::reject("the database says no"));
    gate.next().await.answer(Outcome::Ack);
    rest().await;
    for member in &mut members[..2] {
        let error = answered(member).expect_err("failed");
        assert!(error.is::<SharedError>() && error.source().is_some());
        assert_eq!(Failure::find(&*error).map(Outcome::name), Some("reject"));
    }
    for member in &mut members[2..] {
        assert_eq!(answered(member).expect("another batch"), "ack");
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Where {
    Ready,
    Call,
    Future,
    Drop,
}

/// Panics where it is told to when a batch has the member "bang". An instance that has panicked is broken for good.
#[derive(Clone)]
struct Bang(Where, bool);

struct Banging(bool, Arc<str>);

impl Service<Batch<Message>> for Bang {
    type Response = ();
    type Error = BoxError;
    type Future = Banging;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        assert!(self.0 != Where::Ready && !self.1, "bang");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, batch: Batch<Message>) -> Banging {
        let bang = batch.iter().any(|message| &message.payload()[..] == b"bang");
        self.1 = self.0 == Where::Call && bang;
        assert!(!self.1, "bang");
        Banging(bang, Arc::from(if self.0 == Where::Drop { "drop" } else { "future" }))
    }
}

impl Future for Banging {
    type Output = Result<(), BoxError>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.0 || &*self.1 == "drop", "bang");
        Poll::Ready(Ok(()))
    }
}

impl Drop for Banging {
    fn drop(&mut self) {
        assert!(!self.0 || &*self.1 != "drop", "bang");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_members_of_its_batch_is_reported_and_a_fresh_clone_goes_on() {
    for place in [Where::Call, Where::Future] {
        let queue = Queue::new(256);
        let (mut service, lane) = (BatchLayer::new(2).layer(Bang(place, false)), queue.lane());
        let mut members = Vec::new();
        for text in ["bang", "0", "1", "2"] {
            members.push(join(&mut service, lane.message(text)).await);
        }
        rest().await;
        for member in &mut members[..2] {
            let error = answered(member).expect_err("it panicked");
            assert!(error.source().is_some_and(|source| source.is::<Panicked>()), "{error}");
        }
        members[2..].iter_mut().for_each(|member| assert!(answered(member).is_ok()));
        assert_eq!(queue.events(), ["gathered 2", "panicked", "gathered 2"]);
        assert!(service.owners().holds_nothing());
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_poll_ready_fails_one_batch_and_the_layer_goes_on() {
    let queue = Queue::new(256);
    let (mut service, lane) = (BatchLayer::new(1).layer(Bang(Where::Ready, false)), queue.lane());
    let mut member = join(&mut service, lane.message("0")).await;
    rest().await;
    assert!(answered(&mut member).expect_err("it panicked").to_string().contains("panicked"));
    let mut member = join(&mut service, lane.message("1")).await;
    rest().await;
    assert!(answered(&mut member).is_err());
    assert_eq!(queue.events(), ["panicked", "panicked"]);
    assert!(service.owners().holds_nothing());
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_future_that_is_dropped_changes_no_answer() {
    let queue = Queue::new(256);
    let (mut service, lane) = (BatchLayer::new(1).layer(Bang(Where::Drop, false)), queue.lane());
    let mut member = join(&mut service, lane.message("bang")).await;
    rest().await;
    assert_eq!(answered(&mut member).expect("it was handled"), "ack");
    assert_eq!(queue.events(), ["gathered 1", "panicked"]);
}

#[test]
fn the_end_of_the_runtime_is_told_to_those_who_run_and_those_who_wait() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (first, second) = (runtime(), runtime());
    let (handler, gate) = gate();
    let mut service = BatchLayer::new(1).layer(handler);
    let mut members: Vec<Answer> = first.block_on(async {
        let lane = Queue::new(256).lane();
        let members =
            vec![join(&mut service, lane.message("0")).await, join(&mut service, lane.message("1")).await];
        rest().await;
        members
    });
    let call = gate.try_next().expect("the first runs");
    drop(first);
    assert!(call.is_cancelled());
    for member in &mut members {
        assert!(answered(member).expect_err("it has ended").is::<Closed>());
    }
    assert!(service.owners().holds_nothing() && service.owners().remembered() == 0);
    second.block_on(async {
        let _member = join(&mut service, Queue::new(256).lane().message("2")).await;
        rest().await;
        assert!(gate.try_next().is_some(), "another runtime does as well");
    });
}

/// The response of a handler that holds something until it is dropped.
struct Holds {
    freed: Arc<AtomicBool>,
    ends: bool,
}

impl Future for Holds {
    type Output = Result<(), BoxError>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if self.ends { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::Relaxed);
    }
}

/// Sees, when it is woken, whether that was freed.
struct Sees {
    freed: Arc<AtomicBool>,
    seen: AtomicBool,
}

impl Wake for Sees {
    fn wake(self: Arc<Self>) {
        self.seen.store(self.freed.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[test]
fn what_a_handler_holds_is_freed_before_its_members_hear_of_its_end() {
    for ends in [true, false] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let freed = Arc::new(AtomicBool::new(false));
        let sees = Arc::new(Sees { freed: freed.clone(), seen: AtomicBool::new(false) });
        let handler = service_fn(move |_: Batch<Message>| Holds { freed: freed.clone(), ends });
        let mut service = BatchLayer::new(1).layer(handler);
        let mut member = None;
        runtime.block_on(async {
            let member = member.insert(service.ready().await.expect("ready").call(Message::new("0")));
            let waker = sees.clone().into();
            let looked = std::pin::Pin::new(member).poll(&mut Context::from_waker(&waker));
            assert!(looked.is_pending());
            rest().await;
        });
        // If it has not ended, it ends with its runtime.
        drop(runtime);
        assert!(sees.seen.load(Ordering::Relaxed));
        drop(member);
    }
}

#[test]
fn without_a_runtime_a_member_is_told_so() {
    let (handler, _gate) = gate::<Batch<Message>>();
    let mut service = BatchLayer::new(3).layer(handler);
    let mut answer = tokio_test::task::spawn(service.ready())
        .poll()
        .map(|ready| ready.expect("ready").call(Message::new("0")));
    let Poll::Ready(answer) = &mut answer else { panic!("ready") };
    let Poll::Ready(Err(error)) = tokio_test::task::spawn(answer).poll() else { panic!("it is answered") };
    assert!(error.is::<NoRuntime>());
    assert!(service.owners().holds_nothing() && service.owners().remembered() == 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_given_once() {
    let handler = service_fn(async |_: Batch<Message>| Ok::<_, BoxError>(Outcomes::All(Outcome::Ack)));
    let mut service = BatchLayer::new(1).layer(handler);
    let mut member = join(&mut service, Message::new("0")).await;
    tokio::time::sleep(ms(1)).await;
    assert!(answered(&mut member).is_ok());
    assert!(member.poll().is_pending());
}
