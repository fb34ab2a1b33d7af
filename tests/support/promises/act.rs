//! The handler: it does what chance tells it, and the model looks on.

use std::time::Duration;

use tokio::time::sleep;
use tower_mq::{Batch, BoxError, Drain, Failure, FromMessage, Message, Outcome, Rejection};

use super::{End, Seen, World};

/// What a handler does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Succeed,
    Fail,
    Refuse,
    Later,
    GiveBack,
    AnswerRetry,
    AnswerReject,
    Panic,
    Hang,
}

/// Panics that are meant need not be read.
pub fn quietly() {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&"planned") {
                usual(info);
            }
        }));
    });
}

/// A message whose payload is text.
pub struct Order(Message);

impl FromMessage for Order {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        String::from_message(message).map(|_| Self(message.clone()))
    }
}

pub async fn handle(world: World, order: Order) -> Result<Outcome, BoxError> {
    let call = Call::begin(&world, &[order.0]);
    let (delay, act) = world.lock().act();
    sleep(delay).await;
    let answer = act.play(&world).await;
    call.end(&[is_success(&answer)]);
    answer
}

pub async fn handle_all(
    world: World,
    orders: Batch<Order>,
) -> Result<Vec<Result<Outcome, BoxError>>, BoxError> {
    let members = orders.into_iter().map(|order| order.0).collect::<Vec<_>>();
    let (count, call) = (members.len(), Call::begin(&world, &members));
    let (delay, act) = world.lock().act();
    sleep(delay).await;
    if count > 1 {
        world.lock().cover("batch");
    }
    // Most batches end member by member.
    if !matches!(act, Act::Succeed) && world.lock().one_in(2) {
        let answer = act.play(&world).await;
        if !is_success(&answer) {
            call.end(&vec![false; count]);
            answer?;
            return Err("the whole batch".into());
        }
    }
    let mut answers = Vec::new();
    for _ in 0..count {
        let (_, act) = world.lock().act();
        let act = if matches!(act, Act::Panic | Act::Hang) { Act::Fail } else { act };
        answers.push(act.play(&world).await);
    }
    call.end(&answers.iter().map(is_success).collect::<Vec<_>>());
    Ok(answers)
}

fn is_success(answer: &Result<Outcome, BoxError>) -> bool {
    matches!(answer, Ok(Outcome::Ack))
}

impl Act {
    async fn play(self, world: &World) -> Result<Outcome, BoxError> {
        let after = Duration::from_millis(20);
        match self {
            Self::Succeed => Ok(Outcome::Ack),
            Self::Fail => Err("not today".into()),
            Self::Refuse => Err(Failure::reject("never").into()),
            Self::Later => Err(Failure::retry_after("later", after).into()),
            Self::GiveBack => Err(Failure::release("not mine").into()),
            Self::AnswerRetry => Ok(Outcome::Retry { after }),
            Self::AnswerReject => Ok(Outcome::reject("never, as I said")),
            Self::Panic => world.panics(),
            Self::Hang => std::future::pending().await,
        }
    }
}

impl Seen {
    /// What a handler does next, and after which time.
    fn act(&mut self) -> (Duration, Act) {
        let act = match self.random.u8(0..32) {
            _ if self.calm => Act::Succeed,
            0..3 => Act::Fail,
            3 => Act::Refuse,
            4 => Act::Later,
            5 => Act::GiveBack,
            6 => Act::AnswerRetry,
            7 => Act::AnswerReject,
            8 => Act::Panic,
            9 => Act::Hang,
            _ => Act::Succeed,
        };
        self.cover(match act {
            Act::Panic => "panic",
            Act::Hang => "time-out",
            Act::Fail => "error",
            Act::Refuse => "refused",
            _ => "other",
        });
        let delay = match self.random.u8(0..4) {
            0 => 0,
            _ => self.random.u64(1..30),
        };
        (Duration::from_millis(delay), act)
    }
}

/// A handler at work, with what it was given.
struct Call {
    world: World,
    members: Vec<(usize, Option<usize>)>,
}

impl Call {
    fn begin(world: &World, members: &[Message]) -> Self {
        let mut seen = world.lock();
        let members = members.iter().map(|message| seen.starts(message)).collect::<Vec<_>>();
        let numbers: Vec<_> = members.iter().map(|(n, _)| *n).collect();
        seen.called(&numbers);
        drop(seen);
        Self { world: world.clone(), members }
    }

    fn end(self, success: &[bool]) {
        let mut seen = self.world.lock();
        seen.note(|| format!("ends {:?}: {success:?}", self.members));
        for ((n, delivery), success) in self.members.iter().zip(success) {
            if let (Some(delivery), true) = (*delivery, success) {
                seen.deliveries[delivery].succeeded = true;
                if let Some(id) = seen.letters[*n].id.clone() {
                    seen.known.insert(id, delivery);
                }
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let numbers: Vec<_> = self.members.iter().map(|(n, _)| *n).collect();
        let mut seen = self.world.lock();
        seen.note(|| format!("over {numbers:?}"));
        if let Some(at) = seen.running.iter().position(|running| *running == numbers) {
            seen.running.swap_remove(at);
        }
    }
}

impl Seen {
    /// A handler is given a message: may it?
    fn starts(&mut self, message: &Message) -> (usize, Option<usize>) {
        let (n, tries) = (Self::number(message), message.tries());
        let Some(delivery) = self.delivery_of(message) else {
            self.broke(format!("promise 2: message {n} is handled, and nobody has taken it"));
            return (n, None);
        };
        let at = format!("message {n}, delivery {delivery}, try {tries}");
        self.note(|| format!("begins {at}"));
        if self.deliveries[delivery].end.is_some() {
            self.broke(format!("promise 2: {at} is handled after it was settled"));
        }
        if self.deliveries[delivery].succeeded {
            self.broke(format!("promise 6: {at} is handled after its success"));
        }
        if tries == 1 {
            if message.is_stale() && self.rules.exact {
                self.broke(format!("promise 2: {at} is handled after its generation had ended"));
            }
            if self.drain == Some(Drain::Release) && self.rules.exact {
                self.broke(format!("promise 7: {at} begins, and was to be released"));
            }
            self.again(n, delivery, &at);
        } else if self.drain.is_some() && self.rules.exact {
            self.broke(format!("promise 7: {at} begins while the stack is about to end"));
        }
        self.in_order(n, tries, &at);
        (n, Some(delivery))
    }

    /// What was handled is handled again only if the broker could not know.
    fn again(&mut self, n: usize, delivery: usize, at: &str) {
        let known = self.letters[n].id.as_ref().and_then(|id| self.known.get(id)).copied();
        let earlier = self.deliveries[..delivery].iter().rposition(|d| d.n == n && d.succeeded);
        let excused = |seen: &Self, of: usize, stale: bool| match &seen.deliveries[of].end {
            Some(End::Dropped(_)) => true,
            Some(end) => {
                stale && (end.is_stale() || !seen.rules.exact && seen.deliveries[of].generation.is_over())
            }
            None => stale && seen.deliveries[of].generation.is_over(),
        };
        if let Some(of) = known
            && !excused(self, of, false)
        {
            self.broke(format!("promise 6: {at} is handled, and its id was in delivery {of}"));
        } else if let Some(of) = earlier
            && !excused(self, of, true)
        {
            self.broke(format!("promise 6: {at} is handled again, after delivery {of}"));
        }
        if known.is_some() || earlier.is_some() {
            self.cover("handled twice");
        }
    }

    fn in_order(&mut self, n: usize, tries: u32, at: &str) {
        let first = !std::mem::replace(&mut self.letters[n].handled, true);
        let Some(key) = self.letters[n].key.clone().filter(|_| self.rules.ordered) else { return };
        if first && let Some(before) = self.firsts.insert(key.clone(), n).filter(|before| *before > n) {
            self.broke(format!("promise 1: {at} is handled after message {before} of {key}"));
        }
        let others =
            || self.running.iter().flatten().filter(|other| self.letters[**other].key.as_ref() == Some(&key));
        if let Some(other) = others().next() {
            self.broke(format!("promise 1: {at} is handled beside message {other} of {key}"));
        }
        // What is tried again in its place has let nobody pass.
        let last = self.last_calls.get(&key);
        if tries > 1 && last.is_some_and(|last| !last.contains(&n)) {
            self.broke(format!("promise 1: {at} was overtaken by messages {last:?} of {key}"));
        }
    }

    fn called(&mut self, members: &[usize]) {
        for n in members {
            if let Some(key) = self.letters[*n].key.clone() {
                self.last_calls.insert(key, members.to_vec());
            }
        }
        self.running.push(members.to_vec());
        if self.running.len() > self.rules.calls {
            let running = &self.running;
            self.broken.push(format!("promise 5: more than {} handlers run: {running:?}", self.rules.calls));
        }
    }
}
