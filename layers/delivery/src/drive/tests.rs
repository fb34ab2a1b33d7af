use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    future::poll_fn,
    rc::Rc,
};

use tokio_test::task::{Spawn, spawn};

use super::*;
use crate::{Message, Turn};

/// What the service does with a request, by the request's number.
#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Ready,
    /// Pending until [`Bench::finish`].
    Waits,
    /// Passes its turn inside `call`, then as `Waits`.
    PassesInCall,
    /// Passes its turn once [`Bench::pass`] has been asked for, then as `Waits`.
    PassesInPoll,
    /// Parks, and is awake again after [`Bench::pass`]; then as `Waits`.
    Parks,
    PanicsInReady,
    PanicsInCall,
    PanicsInPoll,
    /// Passes its turn inside `call`, then panics.
    PassesAndPanics,
    FailsReady,
    /// Declines inside `call`, then as `Ready`.
    Declines,
    /// As `Ready`; the future panics when it is dropped.
    DropPanics,
    /// As `Waits`; the future panics when it is dropped.
    WaitsAndDropPanics,
    /// As `PassesInCall`; the future panics when it is dropped.
    PassesAndDropPanics,
}

#[derive(Default)]
struct State {
    plans: HashMap<u8, Plan>,
    queue: VecDeque<u8>,
    ended: bool,
    taken: u8,
    not_ready: bool,
    called: Vec<u8>,
    dropped: Vec<u8>,
    turns: HashMap<u8, Turn>,
    finished: HashSet<u8>,
    passed: HashSet<u8>,
    cancelled: HashSet<u8>,
    wakers: Vec<Waker>,
    done: Vec<(u8, &'static str)>,
    rests: u32,
}

type Shared = Rc<RefCell<State>>;

struct Script<const PARKS: bool>(Shared);

struct Number(u8, Shared);

impl Tag for Number {
    fn is_cancelled(&self) -> bool {
        self.1.borrow().cancelled.contains(&self.0)
    }

    fn watch(&self, waker: &Waker) -> bool {
        self.1.borrow_mut().wakers.push(waker.clone());
        !self.is_cancelled()
    }
}

impl<const PARKS: bool> Intake<Message, Result<u8, &'static str>> for Script<PARKS> {
    type Tag = Number;

    const PARKS: bool = PARKS;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Message, Number)>> {
        let mut state = self.0.borrow_mut();
        match state.queue.pop_front() {
            Some(n) => {
                state.taken = n;
                Poll::Ready(Some((Message::new(vec![n]), Number(n, self.0.clone()))))
            }
            None if state.ended => Poll::Ready(None),
            None => {
                state.wakers.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn done(&mut self, tag: Number, finished: Finished<Result<u8, &'static str>>) {
        let what = match finished {
            Finished::Answered(answer) => {
                assert_eq!(answer, Ok(tag.0));
                "answered"
            }
            Finished::Panicked(_) => "panicked",
            Finished::Cancelled => "cancelled",
        };
        self.0.borrow_mut().done.push((tag.0, what));
    }

    fn rest(&mut self) {
        self.0.borrow_mut().rests += 1;
    }
}

struct Handler(Shared);

/// Tells that the future was dropped.
struct Guard(u8, Shared);

impl Drop for Guard {
    fn drop(&mut self) {
        self.1.borrow_mut().dropped.push(self.0);
    }
}

impl Service<Message> for Handler {
    type Response = u8;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<u8, &'static str>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        let mut state = self.0.borrow_mut();
        let plan = state.plans.get(&state.taken).copied();
        match plan {
            Some(Plan::PanicsInReady) => panic!("readiness of {}", state.taken),
            Some(Plan::FailsReady) => Poll::Ready(Err("worn out")),
            _ if state.not_ready => {
                state.wakers.push(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, message: Message) -> Self::Future {
        let n = message.payload()[0];
        let shared = self.0.clone();
        let plan = {
            let mut state = shared.borrow_mut();
            state.called.push(n);
            state.turns.insert(n, message.turn().clone());
            state.plans.get(&n).copied().unwrap_or(Plan::Ready)
        };
        match plan {
            Plan::PassesInCall | Plan::PassesAndPanics | Plan::PassesAndDropPanics => message.turn().pass(),
            Plan::PanicsInCall => panic!("call of {n}"),
            Plan::Declines => message.turn().decline(),
            _ => {}
        }
        let guard = Guard(n, shared.clone());
        let drop_panics =
            matches!(plan, Plan::DropPanics | Plan::WaitsAndDropPanics | Plan::PassesAndDropPanics);
        let bomb = drop_panics.then(|| Bomb);
        Box::pin(WithBomb(
            bomb,
            Box::pin(async move {
                let guard = guard;
                let wait_for = async |set: fn(&State) -> &HashSet<u8>| {
                    poll_fn(|cx| {
                        let mut state = shared.borrow_mut();
                        if set(&state).contains(&n) {
                            return Poll::Ready(());
                        }
                        state.wakers.push(cx.waker().clone());
                        Poll::Pending
                    })
                    .await;
                };
                match plan {
                    Plan::Ready | Plan::Declines | Plan::DropPanics => return Ok(n),
                    Plan::PanicsInPoll | Plan::PassesAndPanics => panic!("poll of {n}"),
                    Plan::PassesInPoll => {
                        wait_for(|state| &state.passed).await;
                        message.turn().pass();
                    }
                    Plan::Parks => {
                        let parked = message.turn().park();
                        wait_for(|state| &state.passed).await;
                        drop(parked);
                    }
                    _ => {}
                }
                wait_for(|state| &state.finished).await;
                drop(guard);
                Ok(n)
            }),
        ))
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// A future that is done before its bomb goes off.
struct WithBomb<F>(#[allow(dead_code)] Option<Bomb>, F);

impl<F: Future + Unpin> Future for WithBomb<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.1).poll(cx)
    }
}

struct Bench<const PARKS: bool = false> {
    drive: Drive<Script<PARKS>, Handler, Message>,
    task: Spawn<()>,
    shared: Shared,
}

fn bench(numbers: u8, plans: &[(u8, Plan)]) -> Bench {
    Bench::of(numbers, plans)
}

impl<const PARKS: bool> Bench<PARKS> {
    fn of(numbers: u8, plans: &[(u8, Plan)]) -> Self {
        let state = State {
            queue: (1..=numbers).collect(),
            plans: plans.iter().copied().collect(),
            ended: true,
            ..State::default()
        };
        let shared = Rc::new(RefCell::new(state));
        Self { drive: Drive::new(Script(shared.clone()), Handler(shared.clone())), task: spawn(()), shared }
    }

    fn poll(&mut self) -> Poll<Result<(), Stopped<&'static str>>> {
        let drive = &mut self.drive;
        self.task.enter(|cx, _| drive.poll(cx))
    }

    /// Polls as a runtime does: once, and then as often as it is woken.
    fn run(&mut self) -> Poll<Result<(), Stopped<&'static str>>> {
        loop {
            let polled = self.poll();
            if polled.is_ready() || !self.task.is_woken() {
                return polled;
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.shared.borrow_mut();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn finish(&self, n: u8) {
        self.change(|state| _ = state.finished.insert(n));
    }

    fn pass(&self, n: u8) {
        self.change(|state| _ = state.passed.insert(n));
    }

    fn cancel(&self, n: u8) {
        self.change(|state| _ = state.cancelled.insert(n));
    }

    fn called(&self) -> Vec<u8> {
        self.shared.borrow().called.clone()
    }

    fn done(&self) -> Vec<(u8, &'static str)> {
        self.shared.borrow().done.clone()
    }
}

#[test]
fn one_request_at_a_time_unless_a_turn_is_passed() {
    let mut bench = bench(3, &[(1, Plan::Waits), (2, Plan::Waits)]);
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1]);
    bench.finish(1);
    assert!(bench.task.is_woken());
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1, 2]);
    bench.finish(2);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
    assert_eq!(bench.done(), [(1, "answered"), (2, "answered"), (3, "answered")]);
}

#[test]
fn a_dropped_turn_is_not_passed() {
    let mut bench = bench(2, &[(1, Plan::Waits)]);
    assert!(bench.run().is_pending());
    bench.change(|state| state.turns.clear());
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1]);
}

#[test]
fn a_turn_passed_in_call_lets_the_next_request_in_at_once() {
    let mut bench = bench(3, &[(1, Plan::PassesInCall), (2, Plan::PassesInCall), (3, Plan::PassesInCall)]);
    assert!(bench.poll().is_pending());
    assert_eq!(bench.called(), [1, 2, 3], "all in one poll");
    assert!(bench.run().is_pending());
    bench.finish(2);
    assert!(bench.run().is_pending());
    assert_eq!(bench.done(), [(2, "answered")]);
    bench.finish(1);
    bench.finish(3);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
}

#[test]
fn a_turn_may_be_passed_at_any_poll() {
    let mut bench = bench(2, &[(1, Plan::PassesInPoll), (2, Plan::Waits)]);
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1]);
    bench.pass(1);
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1, 2]);
    bench.finish(1);
    assert!(bench.run().is_pending());
    assert_eq!(bench.done(), [(1, "answered")]);
    bench.finish(2);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
}

#[test]
fn a_turn_passed_on_another_thread_wakes_the_loop() {
    let mut bench = bench(2, &[(1, Plan::Waits), (2, Plan::Waits)]);
    assert!(bench.run().is_pending());
    let turn = bench.shared.borrow().turns[&1].clone();
    std::thread::spawn(move || turn.pass()).join().expect("the thread passes");
    assert!(bench.task.is_woken());
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1, 2]);
    bench.finish(1);
    bench.finish(2);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
}

#[test]
fn a_parked_head_frees_the_loop_and_has_the_right_of_way_when_it_wakes() {
    let mut bench = Bench::<true>::of(4, &[(1, Plan::Parks), (2, Plan::Waits)]);
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1, 2]);
    bench.pass(1);
    assert!(bench.run().is_pending());
    bench.finish(2);
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1, 2], "the one that woke up goes first");
    bench.finish(1);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
    assert_eq!(bench.called(), [1, 2, 3, 4]);
}

#[test]
fn a_loop_that_cannot_tell_keys_apart_ignores_parking() {
    let mut bench = bench(2, &[(1, Plan::Parks)]);
    assert!(bench.run().is_pending());
    assert_eq!(bench.called(), [1]);
    bench.pass(1);
    bench.finish(1);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
}

#[test]
fn a_panic_reaches_the_request_that_met_it_and_no_other() {
    let mut bench = bench(3, &[(2, Plan::PanicsInPoll)]);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
    assert_eq!(bench.done(), [(1, "answered"), (2, "panicked"), (3, "answered")]);
}

#[test]
fn a_panic_among_those_that_passed_their_turns_reaches_its_own_request() {
    let mut bench = bench(4, &[(1, Plan::PassesInCall), (2, Plan::PassesAndPanics), (3, Plan::PassesInCall)]);
    assert!(bench.run().is_pending());
    assert_eq!(bench.done(), [(4, "answered"), (2, "panicked")]);
    assert_eq!(bench.shared.borrow().dropped, [4, 2]);
    bench.finish(3);
    bench.finish(1);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
}

#[test]
fn a_future_that_panics_when_it_is_dropped_costs_nobody_else() {
    for plan in [Plan::DropPanics, Plan::WaitsAndDropPanics, Plan::PassesAndDropPanics] {
        let mut bench = bench(3, &[(1, plan)]);
        while bench.run().is_pending() {
            bench.finish(1);
        }
        let mut done = bench.done();
        done.sort_unstable();
        assert_eq!(done, [(1, "panicked"), (2, "answered"), (3, "answered")]);
    }
}

#[test]
fn a_cancelled_future_that_panics_when_it_is_dropped_is_reported() {
    for plan in [Plan::WaitsAndDropPanics, Plan::PassesAndDropPanics] {
        let mut bench = bench(2, &[(1, plan)]);
        assert!(bench.run().is_pending());
        bench.cancel(1);
        assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
        assert!(bench.done().contains(&(1, "panicked")) && bench.done().contains(&(2, "answered")));
    }
}

#[test]
fn what_is_abandoned_may_panic_when_it_is_dropped() {
    let plans =
        [(1, Plan::PassesAndDropPanics), (2, Plan::PassesAndDropPanics), (3, Plan::WaitsAndDropPanics)];
    let mut bench = bench(3, &plans);
    assert!(bench.poll().is_pending(), "two are not polled yet, one is");
    bench.drive.abandon();
    assert_eq!(bench.shared.borrow().dropped.len(), 3);

    let mut bench = self::bench(3, &plans);
    assert!(bench.run().is_pending(), "all were polled");
    bench.drive.abandon();
    assert_eq!(bench.shared.borrow().dropped.len(), 3);
}

#[test]
fn a_panic_of_the_service_itself_asks_for_another_instance() {
    for plan in [Plan::PanicsInCall, Plan::PanicsInReady] {
        let mut bench = bench(3, &[(1, Plan::PassesInCall), (2, plan)]);
        assert!(matches!(bench.run(), Poll::Ready(Err(Stopped::Broken))));
        bench.drive.replace(Handler(bench.shared.clone()));
        assert!(bench.run().is_pending());
        assert_eq!(bench.done(), [(2, "panicked"), (3, "answered")]);
        bench.finish(1);
        assert!(matches!(bench.run(), Poll::Ready(Ok(()))), "what ran before goes on");
    }
}

#[test]
fn a_service_that_fails_gives_the_request_back_and_what_runs_is_finished() {
    let mut bench = bench(3, &[(1, Plan::PassesInCall), (2, Plan::FailsReady)]);
    assert!(matches!(bench.run(), Poll::Ready(Err(Stopped::Failed("worn out")))));
    let (request, tag) = bench.drive.stop().expect("the request in hand");
    assert_eq!((request.payload()[0], tag.0), (2, 2));
    assert!(bench.run().is_pending());
    bench.finish(1);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
    assert_eq!(bench.done(), [(1, "answered")]);
    assert_eq!(bench.called(), [1], "nothing more is taken");
}

#[test]
fn a_request_that_nobody_wants_is_not_called() {
    let mut bench = bench(2, &[]);
    bench.cancel(1);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
    assert_eq!(bench.called(), [2]);
    assert_eq!(bench.done(), [(1, "cancelled"), (2, "answered")]);
}

#[test]
fn a_request_that_waits_for_readiness_can_be_cancelled_and_its_reservation_is_not_kept() {
    let mut bench = bench(2, &[]);
    bench.shared.borrow_mut().not_ready = true;
    assert!(bench.run().is_pending());
    bench.cancel(1);
    assert!(bench.task.is_woken());
    assert!(matches!(bench.run(), Poll::Ready(Err(Stopped::Broken))), "a clone holds no reservation");
    assert_eq!(bench.done(), [(1, "cancelled")]);
    bench.drive.replace(Handler(bench.shared.clone()));
    bench.change(|state| state.not_ready = false);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
    assert_eq!(bench.done(), [(1, "cancelled"), (2, "answered")]);
}

#[test]
fn a_service_that_was_readied_for_nothing_is_given_up_once_there_is_nothing_more_to_do() {
    let mut bench = bench(3, &[(1, Plan::Declines), (2, Plan::Declines)]);
    assert!(matches!(bench.run(), Poll::Ready(Err(Stopped::Declined))));
    assert_eq!(bench.done(), [(1, "answered"), (2, "answered"), (3, "answered")]);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))), "it is said once");
}

#[test]
fn a_future_that_nobody_wants_is_dropped_before_it_is_reported() {
    for plan in [Plan::Waits, Plan::PassesInCall] {
        let mut bench = bench(1, &[(1, plan)]);
        assert!(bench.run().is_pending());
        bench.cancel(1);
        assert!(bench.task.is_woken());
        assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
        assert_eq!(bench.shared.borrow().dropped, [1]);
        assert_eq!(bench.done(), [(1, "cancelled")]);
    }
}

#[test]
fn readiness_is_asked_for_only_with_a_request_in_hand() {
    let mut bench = bench(0, &[]);
    bench.shared.borrow_mut().ended = false;
    bench.shared.borrow_mut().plans.insert(0, Plan::PanicsInReady);
    assert!(bench.run().is_pending());
}

#[test]
fn stopping_takes_nothing_more_and_finishes_what_runs() {
    let mut bench = bench(3, &[(1, Plan::Waits)]);
    assert!(bench.run().is_pending());
    assert!(bench.drive.stop().is_none());
    bench.finish(1);
    assert!(matches!(bench.run(), Poll::Ready(Ok(()))));
    assert_eq!(bench.called(), [1]);
}

#[test]
fn the_loop_gives_way_under_a_load_without_end() {
    let mut bench = bench(255, &[]);
    assert!(bench.poll().is_pending());
    assert!(bench.task.is_woken());
    assert!((100..200).contains(&bench.called().len()));
    assert_eq!(bench.shared.borrow().rests, 1);
}

#[test]
fn what_runs_is_dropped_before_the_intake() {
    struct Last(Rc<Cell<bool>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    struct Watched(Script<false>, #[expect(dead_code, reason = "its drop is what counts")] Last);
    impl Intake<Message, Result<u8, &'static str>> for Watched {
        type Tag = Number;
        fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Message, Number)>> {
            self.0.poll_next(cx)
        }
        fn done(&mut self, tag: Number, finished: Finished<Result<u8, &'static str>>) {
            self.0.done(tag, finished);
        }
    }
    struct Early(Handler, Rc<Cell<bool>>);
    impl Service<Message> for Early {
        type Response = u8;
        type Error = &'static str;
        type Future = Pin<Box<dyn Future<Output = Result<u8, &'static str>>>>;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            self.0.poll_ready(cx)
        }
        fn call(&mut self, message: Message) -> Self::Future {
            struct Check(Rc<Cell<bool>>);
            impl Drop for Check {
                fn drop(&mut self) {
                    assert!(!self.0.get(), "the intake was dropped before the future");
                }
            }
            let (check, future) = (Check(self.1.clone()), self.0.call(message));
            Box::pin(async move {
                let _check = check;
                future.await
            })
        }
    }
    for plan in [Plan::Waits, Plan::PassesInCall] {
        let (dropped, inner) = (Rc::new(Cell::new(false)), bench(1, &[(1, plan)]));
        let intake = Watched(Script(inner.shared.clone()), Last(dropped.clone()));
        let mut drive = Drive::new(intake, Early(Handler(inner.shared.clone()), dropped.clone()));
        assert!(spawn(()).enter(|cx, _| drive.poll(cx)).is_pending());
        drop(drive);
        assert!(dropped.get());
        assert_eq!(inner.shared.borrow().dropped, [1]);
    }
}
