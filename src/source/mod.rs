//! Where deliveries come from.
//!
//! A source is a plain `Stream<Item = Delivery>` that also has a [`Handle`] and says why it ended.

mod control;
mod error;
mod from_stream;
mod health;
#[cfg(any(test, feature = "rabbitmq"))]
mod ledger;
pub mod memory;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "rabbitmq")]
mod reconnect;

use std::{
    ops::DerefMut,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;
use tower_mq_delivery::Delivery;

pub use control::{Control, Demand, Handle};
pub use error::{SourceError, SourceErrorKind};
pub use from_stream::{FromStream, from_stream};
pub use health::{Health, State};
#[cfg(feature = "rabbitmq")]
pub use reconnect::Reconnect;

/// A stream of deliveries that says why it ended.
///
/// - Transient trouble is the source's own business: it reconnects with a backoff, and tells [`Health`]. The stream
///   is just pending meanwhile.
/// - The stream ends (`None`) when the source was closed through its [`Handle`], or when it cannot go on.
///   [`poll_closed`](Self::poll_closed) then says which.
/// - Settlements do not need the stream to be polled.
///
/// # Order
/// Deliveries come in the order of the broker's queue.
// Implementations are marked `do_not_recommend`: who tries to serve a plain stream need not read a list of brokers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of deliveries",
    label = "not a `Source`",
    note = "wrap a plain `Stream<Item = Delivery>` in `source::from_stream(..)`"
)]
pub trait Source: Stream<Item = Delivery> {
    /// Watches and steers this source.
    fn handle(&self) -> Handle;

    /// Completes the end: takes nothing more, waits until all that was handed out is settled, tells the broker, and
    /// closes the broker's side. Ready with an error if the source ended without being asked to.
    ///
    /// Called after the stream has ended. A source that is dropped instead makes an effort to do the same in the
    /// background.
    fn poll_closed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>>;
}

#[diagnostic::do_not_recommend]
impl<S: Source + Unpin + ?Sized> Source for Box<S> {
    fn handle(&self) -> Handle {
        (**self).handle()
    }

    fn poll_closed(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        Pin::new(&mut **self).poll_closed(cx)
    }
}

#[diagnostic::do_not_recommend]
impl<P> Source for Pin<P>
where
    P: DerefMut + Unpin,
    P::Target: Source,
{
    fn handle(&self) -> Handle {
        self.as_ref().get_ref().handle()
    }

    fn poll_closed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        self.get_mut().as_mut().poll_closed(cx)
    }
}
