//! Any stream of deliveries as a source.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;
use pin_project::pin_project;
use tower_mq_delivery::{Capabilities, Delivery, Origin};

use super::{Control, Demand, Handle, Source, SourceError};

/// Makes a source of any stream of deliveries. Its end is a good end.
///
/// Settlements are the business of whoever made the deliveries; nothing is flushed or closed. It is connected from the
/// beginning to its end, as far as its [`Health`](super::Health) knows.
pub fn from_stream<St: Stream<Item = Delivery>>(stream: St) -> FromStream<St> {
    let origin = Origin::new("stream", "", usize::MAX, Capabilities::unknown());
    let control = Control::new(Arc::new(origin));
    control.connected(1);
    FromStream { stream, control, closed: false }
}

/// A stream as a source: see [`from_stream`].
#[derive(Debug)]
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub struct FromStream<St> {
    #[pin]
    stream: St,
    control: Control,
    closed: bool,
}

impl<St: Stream<Item = Delivery>> Stream for FromStream<St> {
    type Item = Delivery;

    #[inline(always)]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut this = self.project();
        loop {
            let demand = this.control.demand();
            match demand {
                Demand::Take => {
                    if let Poll::Ready(next) = this.stream.as_mut().poll_next(cx) {
                        return Poll::Ready(next);
                    }
                }
                Demand::Pause => {}
                Demand::Close(_) => return Poll::Ready(None),
            }
            // Registered only when there is something to wait for, and looked at once more after that.
            if this.control.poll_demand(cx) == demand {
                return Poll::Pending;
            }
        }
    }
}

#[diagnostic::do_not_recommend]
impl<St: Stream<Item = Delivery>> Source for FromStream<St> {
    fn handle(&self) -> Handle {
        self.control.handle()
    }

    fn poll_closed(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        let this = self.project();
        if !std::mem::replace(this.closed, true) {
            this.control.closed(None);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::source::State;

    #[tokio::test]
    async fn its_health_is_connected_until_it_is_closed() {
        let mut source = from_stream(stream::empty());
        let handle = source.handle();
        assert!(matches!(handle.health().state, State::Connected { .. }));
        let closed = std::future::poll_fn(|cx| Pin::new(&mut source).poll_closed(cx)).await;
        assert!(closed.is_ok());
        assert!(matches!(handle.health().state, State::Closed { error: None }));
    }
}
