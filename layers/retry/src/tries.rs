//! The tries of one delivery, or of one batch: what is known of them, and what follows from a failure.

use std::{fmt, sync::Arc, time::Duration};

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

type Answer<W> = Result<<W as Work>::Answer, BoxError>;

/// The tries so far.
pub(crate) struct Tries<W> {
    /// What a further try is given: the members of a batch that are not decided.
    work: W,
    settings: Arc<Settings>,
    /// Only where the time is limited: a look at the clock is not free.
    began: Option<Instant>,
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

impl<W: Work> Tries<W> {
    #[inline]
    pub(crate) fn new(work: W, settings: Arc<Settings>) -> Self {
        let began = settings.elapsed.map(|_| Instant::now());
        Self { work, settings, began, done: 0, aside: Aside::new() }
    }

    /// A try has ended with this. `here`: another one can begin here.
    #[inline]
    pub(crate) fn judge(&mut self, answer: Answer<W>, here: bool) -> Next<W> {
        self.done = self.done.saturating_add(1);
        match &answer {
            Ok(decided) if decided.decided().is_some() && self.aside.is_empty() => {
                self.settings.deposit();
                Next::Answer(answer)
            }
            _ if here => self.again(answer),
            _ => Next::Answer(self.requeue(answer)),
        }
    }

    #[cold]
    fn again(&mut self, answer: Answer<W>) -> Next<W> {
        let Self { work, settings, began, done, aside } = self;
        let rest = settings.backoff.delay(*done);
        let in_time = match (*began, settings.elapsed) {
            (Some(began), Some(limit)) => began.elapsed().saturating_add(rest) <= limit,
            _ => true,
        };
        let left = *done < settings.attempts && in_time;
        if left && is_in_vain(work) {
            let answer = work.decide(answer, &mut |message, error| {
                message.failed();
                settings.wants(error).then_some(Outcome::Release)
            });
            return Next::Answer(self.widen(answer));
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
            return Next::Answer(self.widen(answer));
        }
        if settings.mode == Mode::Requeue
            && let Some(message) = work.messages().first()
        {
            message.origin().warn(STAYS);
        }
        Next::Rest(self.rest(rest))
    }

    fn rest(&self, rest: Duration) -> Pause {
        let parks = self.settings.mode == Mode::Park;
        pause(rest, self.generations(), self.work.single().filter(|_| parks).map(Nap::new))
    }

    /// While the service is not ready for the next try. Ready only when there will be none.
    pub(crate) fn wait(&self) -> Pause {
        pause(Duration::MAX, self.generations(), None)
    }

    fn generations(&self) -> Vec<Arc<Generation>> {
        let mut generations: Vec<Arc<Generation>> = Vec::with_capacity(1);
        for message in self.work.messages() {
            if !generations.iter().any(|there| Arc::ptr_eq(there, message.generation())) {
                generations.push(message.generation().clone());
            }
        }
        generations
    }

    /// What the next try is given; `Err`: there is none, and this is the answer.
    pub(crate) fn next(&mut self) -> Result<W, Answer<W>> {
        // Meanwhile it waited for the service.
        if is_in_vain(&self.work) {
            return Err(self.in_vain());
        }
        if self.work.messages().iter().any(Message::is_stale) {
            // Somebody else has them, or will. Nobody judges their error any more.
            let gone = Err(Failure::release("the connection of the message is gone").into());
            if self.work.narrow(gone, &mut self.aside, &mut |message, _| !message.is_stale()).is_some() {
                return Err(self.in_vain());
            }
        }
        self.work.again();
        Ok(self.work.clone())
    }

    /// There is no further try: what is undecided goes back.
    pub(crate) fn in_vain(&mut self) -> Answer<W> {
        self.widen(Ok(Outcome::Release.into()))
    }

    /// The last answer, with what was decided before it.
    pub(crate) fn widen(&mut self, answer: Answer<W>) -> Answer<W> {
        W::widen(answer, &mut self.aside)
    }

    /// Whatever failed goes back to its broker.
    #[cold]
    fn requeue(&self, answer: Answer<W>) -> Answer<W> {
        let (settings, mut failed, mut allowed) = (&*self.settings, false, None);
        let answer = self.work.decide(answer, &mut |message, error: &DynError| {
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
}

/// No further try would end well: the stack is about to end, or all messages belong to somebody else by now.
fn is_in_vain(work: &impl Work) -> bool {
    let messages = work.messages();
    messages.first().is_some_and(|first| first.origin().drain().is_some())
        || messages.iter().all(Message::is_stale)
}

impl<W> fmt::Debug for Tries<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tries")
            .field("settings", &self.settings)
            .field("done", &self.done)
            .field("aside", &self.aside)
            .finish_non_exhaustive()
    }
}
