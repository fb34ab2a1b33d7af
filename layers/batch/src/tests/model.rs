//! Random histories of arrivals, waits, ends and departures, against a model that knows no tasks and no wake-ups.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::Index};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_mq_delivery::{BoxError, ClosedBy, Drain, Generation, Message, Outcome, Outcomes};
use tower_mq_testing::gate;

use super::{Answer, Handled, Lane, Queue, answered, batch, ms, rest};
use crate::BatchLayer;

const LANES: usize = 2;
const WAIT: u64 = 10;

#[derive(Clone, Debug)]
struct Settings {
    size: usize,
    ready: bool,
    max_bytes: usize,
    groups: usize,
    window: usize,
}

#[derive(Clone, Debug)]
enum Step {
    /// So many at once, of one group, each of this length.
    Arrive {
        lane: usize,
        group: u8,
        members: usize,
        bytes: usize,
    },
    /// One of those who wait goes away.
    Leave(Index),
    Pass(u64),
    /// The batch of this lane ends.
    End {
        lane: usize,
        how: How,
    },
    Idle(usize),
    Reconnect,
    Drain(Drain),
}

#[derive(Clone, Copy, Debug)]
enum How {
    All,
    Each,
    Fails,
    Panics,
    WrongLength,
}

fn settings() -> impl Strategy<Value = Settings> {
    (1..5_usize, any::<bool>(), prop_oneof![Just(usize::MAX), 1..12_usize], 1..4_usize, 2..12_usize).prop_map(
        |(size, ready, max_bytes, groups, window)| Settings { size, ready, max_bytes, groups, window },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![
        Just(How::All),
        Just(How::Each),
        Just(How::Fails),
        Just(How::Panics),
        Just(How::WrongLength)
    ];
    prop_oneof![
        8 => (0..LANES, 0..3_u8, 1..4_usize, 2..6_usize)
            .prop_map(|(lane, group, members, bytes)| Step::Arrive { lane, group, members, bytes }),
        3 => any::<Index>().prop_map(Step::Leave),
        4 => (0..15_u64).prop_map(Step::Pass),
        6 => (0..LANES, how).prop_map(|(lane, how)| Step::End { lane, how }),
        2 => (0..LANES).prop_map(Step::Idle),
        1 => Just(Step::Reconnect),
    ]
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let drain = prop_oneof![
        2 => Just(None),
        1 => (any::<Index>(), prop_oneof![Just(Drain::Finish), Just(Drain::Release)]).prop_map(Some),
    ];
    (prop::collection::vec(step(), 1..60), drain).prop_map(|(mut steps, drain)| {
        if let Some((at, drain)) = drain {
            steps.insert(at.index(steps.len()), Step::Drain(drain));
        }
        steps
    })
}

/// What is expected.
struct Model {
    settings: Settings,
    now: u64,
    generation: u64,
    drain: Option<Drain>,
    lanes: [ModelLane; LANES],
    answers: BTreeMap<String, String>,
}

#[derive(Default)]
struct ModelLane {
    line: Vec<Open>,
    running: Option<Running>,
}

struct Open {
    group: u8,
    generation: u64,
    members: Vec<String>,
    due: u64,
    reason: ClosedBy,
    sealed: bool,
}

struct Running {
    generation: u64,
    members: Vec<String>,
    left: Vec<String>,
    closed_by: ClosedBy,
}

impl Open {
    fn bytes(&self) -> usize {
        self.members.iter().map(String::len).sum()
    }

    fn due(&mut self, reason: ClosedBy, now: u64) {
        if self.due > now {
            (self.due, self.reason) = (now, reason);
        }
    }

    fn seal(&mut self, reason: ClosedBy, now: u64) {
        (self.due, self.reason, self.sealed) = (self.due.min(now), reason, true);
    }
}

impl Model {
    fn arrive(&mut self, at: usize, group: u8, member: &str) {
        if self.drain == Some(Drain::Release) {
            self.answers.insert(member.to_owned(), "release".to_owned());
            return;
        }
        let (now, generation, settings) = (self.now, self.generation, self.settings.clone());
        let lane = &mut self.lanes[at];
        let mut open =
            lane.line.iter().rposition(|b| !b.sealed && (b.group, b.generation) == (group, generation));
        if let Some(full) = open
            && lane.line[full].bytes() + member.len() > settings.max_bytes
        {
            lane.line[full].seal(ClosedBy::Bytes, now);
            open = None;
        }
        let due = now + WAIT;
        let open = open.unwrap_or_else(|| {
            let reason = ClosedBy::Wait;
            lane.line.push(Open { group, generation, members: Vec::new(), due, reason, sealed: false });
            lane.line.len() - 1
        });
        lane.line[open].members.push(member.to_owned());
        if lane.line[open].members.len() == settings.size {
            lane.line[open].seal(ClosedBy::Size, now);
        } else if lane.line[open].bytes() >= settings.max_bytes {
            lane.line[open].seal(ClosedBy::Bytes, now);
        } else if self.drain.is_some() {
            lane.line[open].due(ClosedBy::Drain, now);
        }
        if lane.line.iter().filter(|b| !b.sealed).count() > settings.groups
            && let Some(oldest) = lane.line.iter_mut().find(|b| !b.sealed)
        {
            oldest.seal(ClosedBy::Groups, now);
        }
        let waiting = |lane: &ModelLane| -> usize {
            lane.line.iter().filter(|b| b.generation == generation).map(|b| b.members.len()).sum()
        };
        let all: usize = self.lanes.iter().map(waiting).sum();
        let running = self.lanes.iter().filter_map(|lane| lane.running.as_ref());
        let running: usize = running.filter(|b| b.generation == generation).map(|b| b.members.len()).sum();
        let lane = &mut self.lanes[at];
        let full = waiting(lane) + running >= settings.window || (running == 0 && all >= settings.window);
        if full
            && lane.running.is_none()
            && lane.line.iter().all(|b| b.due > now)
            && let Some(oldest) = lane.line.iter_mut().find(|b| b.generation == generation)
        {
            oldest.due(ClosedBy::Window, now);
        }
    }

    fn leave(&mut self, member: &str) {
        for lane in &mut self.lanes {
            lane.line.iter_mut().for_each(|b| b.members.retain(|m| m != member));
            lane.line.retain(|b| !b.members.is_empty());
            if let Some(running) = &mut lane.running
                && running.members.iter().any(|m| m == member)
            {
                running.left.push(member.to_owned());
                if running.left.len() == running.members.len() {
                    lane.running = None;
                }
            }
        }
    }

    fn idle(&mut self, lane: usize) {
        if self.settings.ready {
            let now = self.now;
            self.lanes[lane].line.iter_mut().for_each(|b| b.due(ClosedBy::Idle, now));
        }
    }

    fn end(&mut self, lane: usize, how: How) {
        let Some(running) = self.lanes[lane].running.take() else { return };
        for (place, member) in running.members.into_iter().enumerate() {
            if running.left.contains(&member) {
                continue;
            }
            let answer = match how {
                How::All => "ack",
                How::Each if place % 2 == 0 => "reject",
                How::Each => "this one failed",
                How::Fails => "all failed",
                How::Panics => "panicked",
                How::WrongLength => "results",
            };
            self.answers.insert(member, answer.to_owned());
        }
    }

    /// What happens by itself.
    fn settle(&mut self) {
        let (now, generation, drain) = (self.now, self.generation, self.drain);
        for lane in &mut self.lanes {
            for b in &mut lane.line {
                if b.generation < generation || drain == Some(Drain::Release) {
                    let answers = b.members.drain(..).map(|member| (member, "release".to_owned()));
                    self.answers.extend(answers);
                } else if drain.is_some() {
                    b.due(ClosedBy::Drain, now);
                }
            }
            lane.line.retain(|b| !b.members.is_empty());
            let due = lane.line.iter().enumerate().filter(|(_, b)| b.due <= now).min_by_key(|(_, b)| b.due);
            if lane.running.is_none()
                && let Some((at, _)) = due
            {
                let Open { generation, members, reason, .. } = lane.line.remove(at);
                lane.running = Some(Running { generation, members, left: Vec::new(), closed_by: reason });
            }
        }
    }
}

/// What is there.
struct Real<S> {
    service: S,
    queue: Queue,
    lanes: [Lane; LANES],
    running: [Option<Handled>; LANES],
    waiting: BTreeMap<String, Answer>,
    arrived: usize,
}

async fn play(settings: Settings, steps: Vec<Step>) {
    let (handler, gate) = gate();
    let handler = ServiceBuilder::new()
        .map_result(|answer: Result<Outcomes, BoxError>| {
            assert!(!answer.as_ref().is_err_and(|error| error.to_string() == "panic"), "on purpose");
            answer
        })
        .service(handler);
    let layer = BatchLayer::new(settings.size)
        .group_by(|message| message.key().cloned())
        .groups(settings.groups)
        .wait(ms(WAIT));
    let layer = if settings.max_bytes < usize::MAX { layer.max_bytes(settings.max_bytes) } else { layer };
    let layer = if settings.ready { layer.ready() } else { layer };
    let queue = Queue::new(settings.window);
    let mut real = Real {
        service: layer.layer(handler),
        lanes: [(); LANES].map(|()| queue.lane()),
        queue,
        running: [None, None],
        waiting: BTreeMap::new(),
        arrived: 0,
    };
    let mut model = Model {
        settings,
        now: 0,
        generation: 1,
        drain: None,
        lanes: Default::default(),
        answers: BTreeMap::new(),
    };
    // All comes to its end, whatever was played.
    let ends = (0..LANES).map(|lane| Step::End { lane, how: How::All }).chain([Step::Pass(WAIT)]);
    let ends = ends.collect::<Vec<_>>();
    let rounds = steps.len() * 3 + 3;
    for step in steps.into_iter().chain(ends.into_iter().cycle().take(3 * rounds)) {
        match step {
            Step::Arrive { lane, group, members, bytes } => {
                for _ in 0..members {
                    real.arrived += 1;
                    let name = format!("{:0bytes$}", real.arrived);
                    let message = Message::builder(name.clone()).key(vec![group]);
                    let message = real.lanes[lane].take(message);
                    let service = real.service.ready().await.expect("ready");
                    let answer = tokio_test::task::spawn(service.call(message));
                    model.arrive(lane, group, &name);
                    let mut answer = answer;
                    match model.answers.get(&name) {
                        Some(expected) => {
                            let std::task::Poll::Ready(answer) = answer.poll() else { panic!("too late") };
                            assert_eq!(answer.expect("decided").name(), expected);
                        }
                        None => {
                            assert!(answer.poll().is_pending() && real.lanes[lane].goes_on());
                            real.waiting.insert(name, answer);
                        }
                    }
                }
            }
            Step::Leave(index) if !real.waiting.is_empty() => {
                let name = index.get(&real.waiting.keys().cloned().collect::<Vec<_>>()).clone();
                real.waiting.remove(&name);
                model.leave(&name);
            }
            Step::Leave(_) => {}
            Step::Pass(time) => {
                tokio::time::sleep(ms(time)).await;
                model.now += time;
            }
            Step::End { lane, how } => {
                model.end(lane, how);
                if let Some(call) = real.running[lane].take() {
                    end(call, how);
                }
            }
            Step::Idle(lane) => {
                real.lanes[lane].turns.idle();
                model.idle(lane);
            }
            Step::Reconnect => {
                let next: std::sync::Arc<Generation> = real.queue.generation.next();
                real.lanes.iter_mut().for_each(|lane| lane.generation = next.clone());
                real.queue.generation = next;
                model.generation += 1;
            }
            Step::Drain(drain) => {
                real.queue.origin().start_drain(drain);
                model.drain = Some(drain);
            }
        }
        rest().await;
        model.settle();
        let mut calls: Vec<_> = std::iter::from_fn(|| gate.try_next()).collect();
        for (lane, running) in real.running.iter_mut().enumerate() {
            running.take_if(|call| call.is_cancelled());
            let expected = model.lanes[lane].running.as_ref();
            if let Some(expected) = expected.filter(|_| running.is_none()) {
                let found = calls.iter().position(|call| batch(call).0 == expected.members);
                let call =
                    calls.remove(found.unwrap_or_else(|| panic!("{:?} does not run", expected.members)));
                assert_eq!(call.request().closed_by(), expected.closed_by, "{:?}", expected.members);
                *running = Some(call);
            }
            assert_eq!(running.is_some(), expected.is_some(), "a batch that nobody waits for is dropped");
        }
        assert!(calls.is_empty(), "one at a time, and none too early: {calls:?}");
        real.waiting.retain(|name, answer| match model.answers.get(name) {
            Some(expected) => {
                let found = answered(answer).unwrap_or_else(|error| error.to_string());
                assert!(found.contains(expected), "{name}: {found} is not {expected}");
                false
            }
            None => {
                assert!(answer.poll().is_pending(), "{name} was answered too early");
                true
            }
        });
    }
    assert!(real.waiting.is_empty(), "every member is answered");
    assert!(real.service.owners().holds_nothing());
    drop(real.lanes);
    assert_eq!(real.service.owners().remembered(), 0);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

fn end(call: Handled, how: How) {
    let members = call.request().len();
    match how {
        How::All => call.answer(Outcome::Ack),
        How::Each => call.answer(Outcomes::Each(
            (0..members)
                .map(|n| if n % 2 == 0 { Ok(Outcome::reject("no")) } else { Err("this one failed".into()) })
                .collect(),
        )),
        How::Fails => call.fail("all failed"),
        How::Panics => call.fail("panic"),
        How::WrongLength => {
            call.answer(Outcomes::Each((0..=members).map(|_| Ok(Outcome::Ack)).collect()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_member_is_answered_once_in_batches_that_are_as_expected(
        settings in settings(),
        steps in history(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(play(settings, steps));
    }
}
