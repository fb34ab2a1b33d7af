//! The batches that clones share, for each owner of turns apart.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    task::{Context, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tower_mq_delivery::{BoxError, ClosedBy, Generation, Message, Origin, SharedError};

use crate::{
    BatchLayer, Closed,
    gathering::{Gathering, Started, is_void},
    held::Held,
    idle::Idle,
    seats::Seats,
};

/// As good as never.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// What the clones of one service share. Nothing is dropped, reported or woken under its lock: that may run anything.
pub(crate) struct Owners {
    settings: BatchLayer,
    /// The bound on all that is gathered and runs.
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    owners: HashMap<usize, Owner>,
    held: Held,
    /// Of the last batch.
    number: u64,
    /// Whose window was last found too small.
    warned: Weak<Origin>,
    failed: Option<SharedError>,
}

/// A driver or lane, by the turns that it gives out. Remembered while there is something of it, and while its turns may
/// wake it.
#[derive(Default)]
struct Owner {
    /// By number.
    line: VecDeque<Gathering>,
    /// The number of the batch that runs.
    running: Option<u64>,
    /// Whether there is a task.
    works: bool,
    /// Of that task, while it waits.
    waker: Option<Waker>,
    idle: Weak<Idle>,
}

/// A message is in a batch.
pub(crate) struct Joined {
    pub(crate) number: u64,
    pub(crate) seats: Arc<Seats>,
    pub(crate) seat: usize,
    /// Who is to be asked to tell when there is nothing more.
    pub(crate) idle: Option<Arc<Idle>>,
    /// The window of this origin cannot fill a batch.
    pub(crate) small: Option<Arc<Origin>>,
    pub(crate) next: Work,
}

/// What a task has to do about it.
pub(crate) enum Work {
    Nothing,
    Wake(Waker),
    Start,
}

/// What a task does next.
pub(crate) enum Next {
    /// These must not be handled any more.
    GiveBack(Vec<Gathering>),
    /// Nobody tells yet when this generation ends.
    Watch(Arc<Generation>),
    /// A batch may start.
    Start,
    /// Nothing, until then or until it is woken.
    Wait(Option<Instant>),
    /// Nothing is left, and the task is not known any more.
    End,
}

impl Owners {
    pub(crate) fn new(settings: &BatchLayer) -> Self {
        let places = Arc::new(Semaphore::new(settings.places()));
        Self { settings: settings.clone(), places, state: Mutex::default() }
    }

    pub(crate) fn places(&self) -> &Arc<Semaphore> {
        &self.places
    }

    pub(crate) fn settings(&self) -> &BatchLayer {
        &self.settings
    }

    /// Why nothing more is taken.
    pub(crate) fn failure(&self) -> BoxError {
        self.state.lock().failed.clone().map_or_else(|| Closed.into(), Into::into)
    }

    /// Puts a message into the open batch of its owner, group and generation.
    pub(crate) fn join(
        self: &Arc<Self>,
        message: Message,
        group: u64,
        place: OwnedSemaphorePermit,
    ) -> Result<Joined, SharedError> {
        let settings = &self.settings;
        let (id, generation) = (message.turn().owner(), message.generation().clone());
        let drains = generation.origin().drain().is_some();
        let mut state = self.state.lock();
        // Under the lock: a later batch of a group must not be due before an earlier one.
        let now = Instant::now();
        let State { owners, held, number, warned, failed } = &mut *state;
        if let Some(error) = failed {
            let error = error.clone();
            drop(state);
            return Err(error);
        }
        held.wait(&generation);
        let owner = owners.entry(id).or_default();
        let could_start = owner.can_start(now);
        let (mut at, mut opened) = (owner.open(group, &generation), false);
        if let Some(full) = at
            && owner.line[full].bytes().saturating_add(message.payload().len()) > settings.max_bytes
        {
            owner.line[full].seal(ClosedBy::Bytes, now);
            at = None;
        }
        let at = at.unwrap_or_else(|| {
            *number += 1;
            let due_at = now.checked_add(settings.wait).unwrap_or_else(|| now + FAR);
            owner.line.push_back(Gathering::open(*number, group, generation.clone(), due_at));
            opened = true;
            owner.line.len() - 1
        });
        let batch = &mut owner.line[at];
        let seat = batch.add(message, place);
        if batch.len() >= settings.size {
            batch.seal(ClosedBy::Size, now);
        } else if batch.bytes() >= settings.max_bytes {
            batch.seal(ClosedBy::Bytes, now);
        } else if drains {
            batch.due(ClosedBy::Drain, now);
        }
        let (number, seats, open) = (batch.number, batch.seats.clone(), batch.is_open());
        if opened {
            owner.keep_open(settings.groups, now);
        }
        if owner.running.is_none() && !owner.can_start(now) && self.is_full(held, owner, &generation) {
            owner.close_oldest(&generation, now);
        }
        let small = (opened && settings.size > generation.origin().window()).then(|| generation.origin());
        let small = small.filter(|origin| warned.as_ptr() != Arc::as_ptr(origin)).cloned();
        if let Some(origin) = &small {
            *warned = Arc::downgrade(origin);
        }
        let idle = (settings.ready && open).then(|| owner.idle(self, id));
        let next = owner.work(opened || (!could_start && owner.can_start(now)));
        drop(state);
        Ok(Joined { number, seats, seat, idle, small, next })
    }

    /// Whether nothing more can come before something ends, as far as can be known from here.
    fn is_full(&self, held: &Held, owner: &Owner, generation: &Arc<Generation>) -> bool {
        let window = generation.origin().window();
        let (waiting, running) = held.of(generation);
        let here: usize =
            owner.line.iter().map(|batch| if batch.is_of(generation) { batch.len() } else { 0 }).sum();
        here + running >= window
            || (running == 0 && waiting >= window)
            || (self.places.available_permits() == 0 && !held.is_running())
    }

    /// A member has gone away; `last`: nobody waits for that batch any more.
    pub(crate) fn leave(&self, id: usize, number: u64, seat: usize, last: bool) {
        let mut state = self.state.lock();
        let State { owners, held, .. } = &mut *state;
        let Some(owner) = owners.get_mut(&id) else { return };
        let (mut waker, mut removed, mut emptied) = (None, None, None);
        if let Ok(at) = owner.line.binary_search_by_key(&number, |batch| batch.number) {
            removed = owner.line[at].remove(seat);
            if removed.is_some() {
                held.leave(&owner.line[at].generation);
            }
            if owner.line[at].is_empty() {
                emptied = owner.line.remove(at);
                waker = owner.waker.take();
            }
        } else if last && owner.running == Some(number) {
            waker = owner.waker.take();
        }
        drop(state);
        drop((removed, emptied));
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The owner has nothing more to give at the moment.
    pub(crate) fn idle(&self, id: usize) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(owner) = state.owners.get_mut(&id) else { return };
        owner.line.iter_mut().for_each(|batch| batch.due(ClosedBy::Idle, now));
        let waker = if owner.running.is_none() { owner.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The owner's turns do not know its waker any more.
    pub(crate) fn forget(&self, id: usize) {
        let mut state = self.state.lock();
        let owner = state.owners.get(&id).is_some_and(Owner::is_vacant).then(|| state.owners.remove(&id));
        drop(state);
        drop(owner);
    }

    /// What the owner's task does next. It is woken when that changes.
    pub(crate) fn next(
        &self,
        id: usize,
        now: Instant,
        is_watched: impl Fn(&Arc<Generation>) -> bool,
        cx: &mut Context<'_>,
    ) -> Next {
        let mut state = self.state.lock();
        let State { owners, held, .. } = &mut *state;
        let Some(owner) = owners.get_mut(&id) else { return Next::End };
        if owner.line.iter().any(Gathering::is_void) {
            let (void, line) = std::mem::take(&mut owner.line).into_iter().partition(Gathering::is_void);
            owner.line = line;
            let void = Vec::from(void);
            void.iter().for_each(|batch| held.end(&batch.generation, batch.len(), 0));
            return Next::GiveBack(void);
        }
        if owner.line.is_empty() && owner.running.is_none() {
            owner.works = false;
            let waker = owner.waker.take();
            let owner = owner.is_vacant().then(|| owners.remove(&id));
            drop(state);
            drop((waker, owner));
            return Next::End;
        }
        if let Some(batch) = owner.line.iter().find(|batch| !is_watched(&batch.generation)) {
            return Next::Watch(batch.generation.clone());
        }
        for batch in &mut owner.line {
            if batch.generation.origin().drain().is_some() {
                batch.due(ClosedBy::Drain, now);
            }
        }
        let next = match owner.line.iter().map(Gathering::due_at).min() {
            _ if owner.running.is_some() => Next::Wait(None),
            Some(first) if first <= now => Next::Start,
            first => Next::Wait(first),
        };
        let waker = match &owner.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => owner.waker.replace(cx.waker().clone()),
        };
        drop(state);
        drop(waker);
        next
    }

    /// The batch that is due first, to be started at once, unless its members must not be handled any more.
    pub(crate) fn start(&self, id: usize, now: Instant) -> Option<Gathering> {
        let mut state = self.state.lock();
        let State { owners, held, .. } = &mut *state;
        let owner = owners.get_mut(&id)?;
        let due = owner.line.iter().enumerate().filter(|(_, batch)| batch.is_due(now));
        let (at, _) = due.min_by_key(|(_, batch)| batch.rank())?;
        if is_void(&owner.line[at].generation) {
            // Given back in the next round.
            return None;
        }
        let batch = owner.line.remove(at)?;
        owner.running = Some(batch.number);
        held.start(&batch.generation, batch.len());
        Some(batch)
    }

    /// A batch has ended.
    pub(crate) fn finish(&self, id: usize, batch: &Started) {
        let mut state = self.state.lock();
        state.held.end(&batch.generation, 0, batch.taken.len());
        if let Some(owner) = state.owners.get_mut(&id) {
            owner.running = None;
        }
    }

    /// The inner service will never be ready again: all that waits is told, and all that comes.
    pub(crate) fn fail(&self, error: BoxError) {
        let mut state = self.state.lock();
        let error = state.failed.get_or_insert_with(|| SharedError::from(error)).clone();
        let State { owners, held, .. } = &mut *state;
        let (mut lines, mut wakers) = (Vec::new(), Vec::new());
        for owner in owners.values_mut() {
            lines.extend(owner.line.drain(..));
            wakers.extend(owner.waker.take());
        }
        lines.iter().for_each(|batch| held.end(&batch.generation, batch.len(), 0));
        drop(state);
        self.places.close();
        for batch in lines {
            batch.close().1.answer(|| Err(error.clone().into()));
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The owner's task is gone.
    pub(crate) fn close(&self, id: usize, why: impl Fn() -> BoxError) {
        let mut state = self.state.lock();
        let State { owners, held, .. } = &mut *state;
        let Some(owner) = owners.get_mut(&id) else { return };
        let (line, waker) = (std::mem::take(&mut owner.line), owner.waker.take());
        line.iter().for_each(|batch| held.end(&batch.generation, batch.len(), 0));
        (owner.works, owner.running) = (false, None);
        let owner = owner.is_vacant().then(|| owners.remove(&id));
        drop(state);
        drop((waker, owner));
        for batch in line {
            batch.close().1.answer(|| Err(why()));
        }
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.state.lock().owners.len()
    }

    #[cfg(test)]
    pub(crate) fn holds_nothing(&self) -> bool {
        self.state.lock().held.is_empty() && self.places.available_permits() == self.settings.places()
    }
}

impl Owner {
    /// The batch that takes in a message of this group and generation.
    fn open(&self, group: u64, generation: &Arc<Generation>) -> Option<usize> {
        self.line.iter().rposition(|batch| batch.is_open() && batch.group == group && batch.is_of(generation))
    }

    /// Closes the oldest, if more than so many are open.
    fn keep_open(&mut self, groups: usize, now: Instant) {
        if self.line.iter().filter(|batch| batch.is_open()).count() > groups
            && let Some(oldest) = self.line.iter_mut().find(|batch| batch.is_open())
        {
            oldest.seal(ClosedBy::Groups, now);
        }
    }

    /// Whether a batch is due, and none runs.
    fn can_start(&self, now: Instant) -> bool {
        self.running.is_none() && self.line.iter().any(|batch| batch.is_due(now))
    }

    fn close_oldest(&mut self, generation: &Arc<Generation>, now: Instant) {
        if let Some(oldest) = self.line.iter_mut().find(|batch| batch.is_of(generation)) {
            oldest.due(ClosedBy::Window, now);
        }
    }

    fn idle(&mut self, owners: &Arc<Owners>, id: usize) -> Arc<Idle> {
        self.idle.upgrade().unwrap_or_else(|| {
            let idle = Arc::new(Idle { owners: owners.clone(), owner: id });
            self.idle = Arc::downgrade(&idle);
            idle
        })
    }

    fn work(&mut self, changed: bool) -> Work {
        if !std::mem::replace(&mut self.works, true) {
            return Work::Start;
        }
        match changed.then(|| self.waker.take()).flatten() {
            Some(waker) => Work::Wake(waker),
            None => Work::Nothing,
        }
    }

    /// Nothing is of it any more.
    fn is_vacant(&self) -> bool {
        !self.works && self.line.is_empty() && self.idle.strong_count() == 0
    }
}
