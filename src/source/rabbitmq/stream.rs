//! The deliveries of a queue.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;
use tokio::sync::oneshot;
use tower_mq_delivery::{Delivery, Drain};

use super::{connect::Link, prefetched::Prefetched, pump::Pump};
use crate::source::{Control, Demand, Handle, Source, SourceError, SourceErrorKind};

/// The deliveries of a queue: what [`Queue::connect`](super::Queue::connect) returns.
///
/// Dropped, it closes in the background: what was handed out is settled first.
///
/// # Order
/// The queue's; see [the module](super#order).
///
/// # Cancel safety
/// A `next` that is dropped takes nothing.
#[must_use = "streams do nothing unless polled"]
pub struct Deliveries {
    control: Control,
    prefetched: Arc<Prefetched>,
    ended: Option<oneshot::Receiver<Result<(), SourceError>>>,
}

impl Deliveries {
    pub(super) fn new(control: Control, pump: Pump, link: Link) -> Self {
        let (ending, ended) = oneshot::channel();
        let prefetched = pump.prefetched.clone();
        control.connected(1);
        tokio::spawn(pump.run(link, ending));
        Self { control, prefetched, ended: Some(ended) }
    }
}

impl Stream for Deliveries {
    type Item = Delivery;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        match self.control.poll_demand(cx) {
            Demand::Take => self.prefetched.poll_next(cx, false),
            Demand::Pause => self.prefetched.poll_next(cx, true),
            Demand::Close(_) => Poll::Ready(None),
        }
    }
}

#[diagnostic::do_not_recommend]
impl Source for Deliveries {
    fn handle(&self) -> Handle {
        self.control.handle()
    }

    fn poll_closed(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        let Some(ended) = &mut self.ended else { return Poll::Ready(Ok(())) };
        let result = match Pin::new(&mut *ended).poll(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                // The end may not have been asked for yet.
                self.control.handle().close(Drain::Finish);
                return Poll::Pending;
            }
        };
        self.ended = None;
        Poll::Ready(result.unwrap_or_else(|_| {
            let name = self.control.origin().name();
            let what = format!("queue `{name}`: the runtime that its connection lived in has ended");
            Err(SourceError::new(SourceErrorKind::Cancelled, what))
        }))
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        if self.ended.is_some() {
            self.control.handle().close(Drain::Release);
        }
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deliveries").field(&self.control.handle()).finish()
    }
}
