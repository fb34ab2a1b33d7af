//! How much of each source's window is in batches.

use std::sync::Arc;

use tower_mq_delivery::Generation;

/// How many messages are in batches, for each generation of which there are some: a window is one of a generation.
#[derive(Default)]
pub(crate) struct Held(Vec<Count>);

struct Count {
    generation: Arc<Generation>,
    waiting: usize,
    running: usize,
}

impl Held {
    /// One more waits.
    pub(crate) fn wait(&mut self, generation: &Arc<Generation>) {
        match self.count(generation) {
            Some(count) => count.waiting += 1,
            None => self.0.push(Count { generation: generation.clone(), waiting: 1, running: 0 }),
        }
    }

    /// One that waits goes away.
    pub(crate) fn leave(&mut self, generation: &Arc<Generation>) {
        self.end(generation, 1, 0);
    }

    /// So many that waited run.
    pub(crate) fn start(&mut self, generation: &Arc<Generation>, members: usize) {
        if let Some(count) = self.count(generation) {
            count.waiting -= members;
            count.running += members;
        }
    }

    /// So many wait or run no more.
    pub(crate) fn end(&mut self, generation: &Arc<Generation>, waiting: usize, running: usize) {
        let Some(count) = self.count(generation) else { return };
        count.waiting -= waiting;
        count.running -= running;
        if count.waiting == 0 && count.running == 0 {
            self.0.retain(|count| count.waiting > 0 || count.running > 0);
        }
    }

    /// How many wait, and how many run.
    pub(crate) fn of(&self, generation: &Arc<Generation>) -> (usize, usize) {
        let count = self.0.iter().find(|count| Arc::ptr_eq(&count.generation, generation));
        count.map_or((0, 0), |count| (count.waiting, count.running))
    }

    /// Whether any runs.
    pub(crate) fn is_running(&self) -> bool {
        self.0.iter().any(|count| count.running > 0)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn count(&mut self, generation: &Arc<Generation>) -> Option<&mut Count> {
        self.0.iter_mut().find(|count| Arc::ptr_eq(&count.generation, generation))
    }
}
