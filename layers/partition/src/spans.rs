//! The spans that deliveries were called in, so that they are handled in them.

use std::sync::OnceLock;

use parking_lot::Mutex;
use tower_mq_delivery::InSpan;
use tracing::{Span, level_filters::LevelFilter};

/// For each place, the span that was entered when its delivery was called. Whoever works for the delivery enters it
/// again, in whatever task: what a layer outside began goes on in the lane.
///
/// Beside the places and not in what moves through the queues, which would grow. While nobody traces there is no table,
/// and all that is done is to look whether there is one.
pub(crate) struct Spans {
    places: u32,
    kept: OnceLock<Box<[Mutex<Option<Span>>]>>,
}

impl Spans {
    pub(crate) const fn new(places: u32) -> Self {
        Self { places, kept: OnceLock::new() }
    }

    /// The delivery at this place is called in the span that is entered now.
    #[inline]
    pub(crate) fn keep(&self, place: u32) {
        if LevelFilter::current() != LevelFilter::OFF {
            self.keep_current(place);
        }
    }

    #[cold]
    fn keep_current(&self, place: u32) {
        let kept = self.kept.get_or_init(|| (0..self.places).map(|_| Mutex::new(None)).collect());
        *kept[place as usize].lock() = Some(Span::current());
    }

    /// Until what this gives back is dropped, the span of the delivery at this place is entered.
    #[inline(always)]
    pub(crate) fn enter(&self, place: u32) -> InSpan {
        self.kept.get().and_then(|kept| enter(&kept[place as usize]))
    }

    /// The delivery at this place is done with.
    #[inline]
    pub(crate) fn forget(&self, place: u32) {
        if let Some(kept) = self.kept.get() {
            forget(&kept[place as usize]);
        }
    }
}

#[cold]
fn enter(span: &Mutex<Option<Span>>) -> InSpan {
    // A handle of its own: no lock is held while the subscriber is told, or while the service works.
    let span = span.lock().clone();
    span.map(|span| Box::new(span.entered()))
}

#[cold]
fn forget(span: &Mutex<Option<Span>>) {
    let span = span.lock().take();
    drop(span);
}
