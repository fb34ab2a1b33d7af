//! The rest between two tries.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::time::sleep;
use tower_mq_delivery::{Event, Generation, Message, Parked};

/// The rest between two tries. In a box, so that those who never fail carry nothing of it.
pub(crate) type Pause = Pin<Box<dyn Future<Output = Rested> + Send>>;

/// Why a rest is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rested {
    /// It lasted as long as it should.
    Fully,
    /// There will be no further try: the stack is about to end, or all messages belong to somebody else by now.
    InVain,
}

/// Rests for so long, or until the source of the first of these generations drains, or until all of them are over.
pub(crate) fn pause(rest: Duration, generations: Vec<Arc<Generation>>, nap: Option<Nap>) -> Pause {
    Box::pin(async move {
        let _nap = nap;
        let mut draining = pin!(async {
            if let Some(first) = generations.first() {
                first.origin().draining().await;
            }
        });
        let mut over = pin!(async {
            for generation in &generations {
                generation.over().await;
            }
        });
        let mut rest = pin!(sleep(rest));
        poll_fn(|cx| {
            if draining.as_mut().poll(cx).is_ready() || over.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Rested::InVain);
            }
            rest.as_mut().poll(cx).map(|()| Rested::Fully)
        })
        .await
    })
}

/// A message that rests while its worker serves others. Awake again when this is dropped, for whatever reason.
#[derive(Debug)]
pub(crate) struct Nap {
    message: Message,
    _parked: Parked,
}

impl Nap {
    pub(crate) fn new(message: &Message) -> Self {
        let parked = message.turn().park();
        message.origin().report(&Event::Parked { message });
        Self { message: message.clone(), _parked: parked }
    }
}

impl Drop for Nap {
    fn drop(&mut self) {
        self.message.origin().report(&Event::Resumed { message: &self.message });
    }
}
