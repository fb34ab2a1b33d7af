//! Wakes a worker when members must go before their batch is due.

use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use tower_mq_delivery::Generation;

/// Waits for the end of a generation, and until then for its stack to drain, which may begin to finish and come to
/// release. It only wakes: what is to be done is seen by looking.
pub(crate) struct Watch {
    generation: Arc<Generation>,
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Watch {
    pub(crate) fn new(generation: Arc<Generation>) -> Self {
        let of = generation.clone();
        let changed = Box::pin(async move {
            let origin = of.origin();
            let (mut draining, mut releasing) = (pin!(origin.draining()), pin!(origin.releasing()));
            let mut over = pin!(of.over());
            let (mut drains, mut releases) = (false, false);
            poll_fn(|cx| {
                // The look at the generation comes next in any case.
                drains = drains || draining.as_mut().poll(cx).is_ready();
                releases = releases || releasing.as_mut().poll(cx).is_ready();
                over.as_mut().poll(cx)
            })
            .await;
        });
        Self { generation, changed }
    }

    pub(crate) fn is_of(&self, generation: &Arc<Generation>) -> bool {
        Arc::ptr_eq(&self.generation, generation)
    }

    /// Ready when the generation is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.changed.as_mut().poll(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("generation", &self.generation.number()).finish_non_exhaustive()
    }
}
