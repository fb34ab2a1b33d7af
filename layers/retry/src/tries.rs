//! The tries of one delivery, or of one batch: what is known of them, and what follows from a failure.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_mq_delivery::{
    Aside, BoxError, Decided, DynError, Event, Failure, Generation, Message, Outcome, Work,
};

use crate::{
    layer::{Mode, Settings},
    pause::{Nap, Pause, pause},
};

const STAYS: &str =
    "a message cannot be requeued here without others coming again too: it is retried in place";

pub(crate) type Answer<W> = Result<<W as Work>::Answer, BoxError>;

/// The tries so far, of what has failed.
#[derive(Debug)]
pub(crate) struct Tries {
    done: u32,
    /// Members of a batch that are decided.
    aside: Aside,
}

/// What follows from a try.
pub(crate) enum Next<W: Work> {
    /// The answer goes out.
    Answer(Answer<W>),
    /// Another try, after this.
    Rest(Pause),
}

impl Tries {
    pub(crate) const fn new() -> Self {
        Self { done: 0, aside: Aside::new() }
    }

    /// A try has ended with this. `here`: another one can begin here.
    pub(crate) fn judge<W: Work>(
        &mut self,
        work: &mut W,
        settings: &Settings,
        began: Option<Instant>,
        answer: Answer<W>,
        here: bool,
    ) -> Next<W> {
        self.done = self.done.saturating_add(1);
        match &answer {
            Ok(decided) if decided.decided().is_some() && self.aside.is_empty() => {
                settings.deposit();
                Next::Answer(answer)
            }
            _ if here => self.again(work, settings, began, answer),
            _ => Next::Answer(requeue(work, settings, answer)),
        }
    }

    fn again<W: Work>(
        &mut self,
        work: &mut W,
        settings: &Settings,
        began: Option<Instant>,
        answer: Answer<W>,
    ) -> Next<W> {
        let Self { done, aside } = self;
        let rest = settings.backoff.delay(*done);
        let in_time = match (began, settings.elapsed) {
            (Some(began), Some(limit)) => began.elapsed().saturating_add(rest) <= limit,
            _ => true,
        };
        let left = *done < settings.attempts && in_time;
        if left && is_in_vain(work) {
            let answer = work.decide(answer, &mut |message, error| {
                message.failed();
                settings.wants(error).then_some(Outcome::Release)
            });
            return Next::Answer(self.widen::<W>(answer));
        }
        let (mut failed, mut allowed) = (false, None);
        let narrowed = work.narrow(answer, aside, &mut |message, error| {
            failed = true;
            // A batch is one call, and one withdrawal.
            let again = left && settings.wants(error) && *allowed.get_or_insert_with(|| settings.withdraw());
            if again {
                settings.retries(message, error, rest);
                message.origin().report(&Event::Retried { message, after: rest });
            }
            again
        });
        if let Some(answer) = narrowed {
            if !failed {
                settings.deposit();
            }
            return Next::Answer(self.widen::<W>(answer));
        }
        if settings.mode == Mode::Requeue
            && let Some(message) = work.messages().first()
        {
            message.origin().warn(STAYS);
        }
        Next::Rest(between(work, settings, rest))
    }

    /// What the next try is given; `Err`: there is none, and this is the answer.
    pub(crate) fn next<W: Work>(&mut self, work: &mut W) -> Result<W, Answer<W>> {
        // Meanwhile it waited for the service.
        if is_in_vain(work) {
            return Err(self.in_vain::<W>());
        }
        if work.messages().iter().any(Message::is_stale) {
            // Somebody else has them, or will. Nobody judges their error any more.
            let gone = Err(Failure::release("the connection of the message is gone").into());
            if work.narrow(gone, &mut self.aside, &mut |message, _| !message.is_stale()).is_some() {
                return Err(self.in_vain::<W>());
            }
        }
        work.again();
        Ok(work.clone())
    }

    /// There is no further try: what is undecided goes back.
    pub(crate) fn in_vain<W: Work>(&mut self) -> Answer<W> {
        self.widen::<W>(Ok(Outcome::Release.into()))
    }

    /// The last answer, with what was decided before it.
    pub(crate) fn widen<W: Work>(&mut self, answer: Answer<W>) -> Answer<W> {
        W::widen(answer, &mut self.aside)
    }
}

/// The rest before the next try.
fn between<W: Work>(work: &W, settings: &Settings, rest: Duration) -> Pause {
    let parks = settings.mode == Mode::Park;
    pause(rest, generations(work), work.single().filter(|_| parks).map(Nap::new))
}

/// Ready when there will be no further try, for those who wait for the service.
pub(crate) fn in_vain(work: &impl Work) -> Pause {
    pause(Duration::MAX, generations(work), None)
}

fn generations(work: &impl Work) -> Vec<Arc<Generation>> {
    let mut generations: Vec<Arc<Generation>> = Vec::with_capacity(1);
    for message in work.messages() {
        if !generations.iter().any(|there| Arc::ptr_eq(there, message.generation())) {
            generations.push(message.generation().clone());
        }
    }
    generations
}

/// Whatever failed goes back to its broker.
fn requeue<W: Work>(work: &W, settings: &Settings, answer: Answer<W>) -> Answer<W> {
    let (mut failed, mut allowed) = (false, None);
    let answer = work.decide(answer, &mut |message, error: &DynError| {
        failed = true;
        let attempt = message.attempt().unwrap_or(if message.redelivered() { 2 } else { 1 }).max(1);
        let again = attempt < settings.attempts
            && settings.wants(error)
            && *allowed.get_or_insert_with(|| settings.withdraw());
        again.then(|| {
            let after = settings.backoff.delay(attempt);
            settings.retries(message, error, after);
            Outcome::Retry { after }
        })
    });
    if !failed {
        settings.deposit();
    }
    answer
}

/// No further try would end well: the stack is about to end, or all messages belong to somebody else by now.
fn is_in_vain(work: &impl Work) -> bool {
    let messages = work.messages();
    messages.first().is_some_and(|first| first.origin().drain().is_some())
        || messages.iter().all(Message::is_stale)
}
