//! What tests of stacks, handlers and layers need.
//!
//! It is all of `tower-mq-testing`, the scripted stream as a [`Source`], so that `serve` runs a stack over it, and the
//! check of a source's contract.
//!
//! | to test | use |
//! |---|---|
//! | a whole stack | [`source()`], a [`Script`] and a [`Probe`] for each delivery |
//! | what it does when connections are lost, messages come twice, settlements fail | the faults of the [`Script`], and [`Reply`] |
//! | one service | [`delivery()`] |
//! | when a handler ends, and in which order | [`gate()`] |
//! | how many run at a time, per key and in all | [`Recorder`] |
//! | a layer of your own | [`contract::check`], and [`turn()`] |
//! | a source of your own | [`contract::source`], and a [`contract::Rig`] |
//! | a stack on a broker, without one | [`memory::Broker`](crate::source::memory::Broker) |
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_mq::{
//!     Message, Outcome, SettleLayer, handler, serve,
//!     testing::{assert_settled, source},
//! };
//!
//! async fn handle_order(order: bytes::Bytes) -> Result<(), std::str::Utf8Error> {
//!     std::str::from_utf8(&order).map(drop)
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let (orders, script) = source();
//! let good = script.deliver(Message::builder("two teas"));
//! let bad = script.deliver(Message::builder(&b"\xff"[..]));
//! script.end();
//!
//! let stack = ServiceBuilder::new().layer(SettleLayer::new()).service(handler(handle_order));
//! serve(orders, stack).await.unwrap();
//! assert_settled!(good, Outcome::Ack);
//! assert_settled!(bad, Outcome::Retry { .. });
//! # }
//! ```

pub mod contract;

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;
use tokio::time::Instant;
pub use tower_mq_testing::*;

use crate::{
    BoxError, Delivery, Origin, SharedError,
    source::{Control, Demand, Handle, Source, SourceError, SourceErrorKind},
};

/// A source, and the script that says what it hands out: [`tower_mq_testing::source()`] for `serve`.
///
/// [`Script::fail`] takes a [`SourceError`], or any other error. The source's handle works as that of a broker; nothing is
/// handed out after it was closed.
pub fn source() -> (ScriptedSource, Script) {
    let (stream, script) = tower_mq_testing::source();
    (ScriptedSource::new(stream), script)
}

/// [`source()`] with a name, a window and capabilities of your own.
pub fn source_of(origin: Origin) -> (ScriptedSource, Script) {
    let (stream, script) = tower_mq_testing::source_of(origin);
    (ScriptedSource::new(stream), script)
}

/// A source that does what its [`Script`] says. Made by [`source()`].
#[derive(Debug)]
#[must_use = "sources do nothing unless polled"]
pub struct ScriptedSource {
    stream: Scripted,
    control: Control,
    /// The generation that the health tells of.
    generation: u64,
    asked: bool,
    closed: bool,
}

impl ScriptedSource {
    fn new(stream: Scripted) -> Self {
        let generation = stream.generation();
        let control = Control::new(generation.origin().clone());
        control.connected(generation.number());
        Self { stream, control, generation: generation.number(), asked: false, closed: false }
    }

    fn tell_generation(&mut self) {
        let generation = self.stream.generation().number();
        if generation != std::mem::replace(&mut self.generation, generation) {
            let error = SharedError::from(BoxError::from("the script lost the connection"));
            self.control.reconnecting(Instant::now(), 0, error);
            self.control.connected(generation);
        }
    }
}

impl Stream for ScriptedSource {
    type Item = Delivery;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = self.get_mut();
        let polled = match this.control.poll_demand(cx) {
            Demand::Take => Pin::new(&mut this.stream).poll_next(cx),
            Demand::Pause => Poll::Pending,
            Demand::Close(_) => {
                this.asked = true;
                Poll::Ready(None)
            }
        };
        this.tell_generation();
        polled
    }
}

#[diagnostic::do_not_recommend]
impl Source for ScriptedSource {
    fn handle(&self) -> Handle {
        self.control.handle()
    }

    fn poll_closed(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        let this = &mut *self;
        let Poll::Ready(closed) = this.stream.poll_closed(cx) else { return Poll::Pending };
        let first = !std::mem::replace(&mut this.closed, true);
        let error =
            closed.err().filter(|_| !this.asked).map(|error| ended(error, this.control.origin().name()));
        if first {
            // The health keeps a copy of the text: an error is not `Clone`.
            let told = error.as_ref().map(|error| SharedError::from(BoxError::from(error.to_string())));
            this.control.closed(told);
        }
        Poll::Ready(error.map_or(Ok(()), Err))
    }
}

fn ended(error: BoxError, name: &str) -> SourceError {
    match error.downcast::<SourceError>() {
        Ok(error) => *error,
        Err(error) => {
            let what = format!("the script of `{name}` lets it end");
            SourceError::new(SourceErrorKind::Cancelled, what).with_source(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{task::Waker, time::Duration};

    use tower::service_fn;

    use super::*;
    use crate::{Drain, Message, Outcome, ServeError, serve, source::State};

    #[tokio::test(start_paused = true)]
    async fn a_scripted_failure_ends_the_run_with_its_error() {
        for (error, kind) in [
            (
                BoxError::from(SourceError::new(SourceErrorKind::NotFound, "no queue")),
                SourceErrorKind::NotFound,
            ),
            (BoxError::from("gone"), SourceErrorKind::Cancelled),
        ] {
            let (orders, script) = source();
            let handle = orders.handle();
            let probe = script.deliver(Message::builder("a"));
            script.wait(Duration::from_secs(9));
            script.fail(error);
            let service = service_fn(async |delivery: Delivery| delivery.settle(Outcome::Ack).await);
            let Err(ServeError::Source { error, report }) = serve(orders, service).await else {
                panic!("an error")
            };
            assert_eq!((error.kind(), report.counts.acked), (kind, 1));
            probe.assert_settled(&Outcome::Ack);
            assert!(matches!(handle.health().state, State::Closed { error: Some(_) }));
        }
    }

    #[test]
    fn its_handle_pauses_and_closes_it_and_tells_of_generations() {
        let (mut orders, script) = source();
        let (handle, mut cx) = (orders.handle(), Context::from_waker(Waker::noop()));
        let _probes = ["a", "b", "c"].map(|text| script.deliver(Message::builder(text)));
        handle.pause();
        assert!(Pin::new(&mut orders).poll_next(&mut cx).is_pending());
        handle.resume();
        let a = Pin::new(&mut orders).poll_next(&mut cx);
        assert!(matches!(a, Poll::Ready(Some(_))));
        script.new_generation();
        let _b = Pin::new(&mut orders).poll_next(&mut cx);
        assert!(matches!(handle.health().state, State::Connected { generation: 2, .. }));
        handle.close(Drain::Finish);
        assert!(matches!(Pin::new(&mut orders).poll_next(&mut cx), Poll::Ready(None)));
        assert!(Pin::new(&mut orders).poll_closed(&mut cx).is_pending());
        drop((a, _b));
        assert!(matches!(Pin::new(&mut orders).poll_closed(&mut cx), Poll::Ready(Ok(()))));
    }
}
