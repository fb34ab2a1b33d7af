//! RabbitMQ: one `basic.ack` with `multiple` for the settled prefix, everything else singly.
//!
//! Broker rules behind it: an ack of a tag that is not outstanding ends the channel, and `multiple` settles all
//! outstanding tags up to its own. So what is not acked is told first, one by one; what then remains before the first
//! undecided delivery is acked, and one frame covers it. Acks behind an undecided delivery go singly.
//!
//! When to send those is the caller's: sent at once, lanes that finish in no particular order would turn almost every
//! ack into a frame of its own. Send them when idle, by age, when the window is full, and before the end.
//!
//! Deliveries must be taken in the order of their tags.

use tower_mq_delivery::Outcome;

use super::Ledger;

/// What to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<T> {
    /// `basic.ack`.
    Ack {
        /// The tag to ack.
        tag: T,
        /// With all outstanding ones before it.
        multiple: bool,
    },
    /// `basic.nack` or `basic.reject`, as the outcome says.
    Negative {
        /// The tag to nack.
        tag: T,
        /// Anything but [`Outcome::Ack`].
        outcome: Outcome,
    },
}

/// The next frame. Send it before the next call: its deliveries have left the ledger. `behind`: also those that an
/// undecided delivery stands before.
///
/// A quorum queue keeps further settlements to itself while 32 frames are under way, loses them if the channel ends
/// then, and no answer of the broker tells when they are through: send it at most 32 in one go before the end.
pub(crate) fn next_frame<T>(ledger: &mut Ledger<T>, behind: bool) -> Option<Frame<T>> {
    if let Some((tag, outcome)) = ledger.pop_negative() {
        return Some(Frame::Negative { tag, outcome });
    }
    if let Some((mut tag, _)) = ledger.pop_settled() {
        let mut multiple = false;
        while let Some((later, _)) = ledger.pop_settled() {
            (tag, multiple) = (later, true);
        }
        return Some(Frame::Ack { tag, multiple });
    }
    let (tag, _) = behind.then(|| ledger.pop_acked()).flatten()?;
    Some(Frame::Ack { tag, multiple: false })
}
