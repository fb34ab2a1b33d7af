//! How a message comes again.

/// How a message comes again: marked as redelivered, and with the attempt that it had, unless it is told otherwise. A
/// message whose attempts nobody had counted counts as the first.
#[derive(Clone, Copy, Debug)]
#[must_use = "this does nothing unless a script is given it"]
pub struct Again {
    pub(super) redelivered: bool,
    attempt: Attempt,
}

#[derive(Clone, Copy, Debug)]
enum Attempt {
    Same,
    Next,
    Exactly(u32),
}

impl Again {
    /// Marked, and not counted: what most brokers do when a connection is lost.
    pub const fn new() -> Self {
        Self { redelivered: true, attempt: Attempt::Same }
    }

    /// Not marked: as if it had been published twice.
    pub const fn unmarked(mut self) -> Self {
        self.redelivered = false;
        self
    }

    /// It counts as another attempt.
    pub const fn counted(mut self) -> Self {
        self.attempt = Attempt::Next;
        self
    }

    /// It is said to be this attempt, from 1.
    pub const fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = Attempt::Exactly(attempt);
        self
    }

    pub(super) fn attempt_after(self, before: Option<u32>) -> u32 {
        let before = before.unwrap_or(1);
        match self.attempt {
            Attempt::Same => before,
            Attempt::Next => before.saturating_add(1),
            Attempt::Exactly(attempt) => attempt,
        }
    }
}

impl Default for Again {
    fn default() -> Self {
        Self::new()
    }
}
