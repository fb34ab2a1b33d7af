//! What a broker can and cannot do.

/// What the broker behind a source can and cannot do. Layers read it: they never ask which broker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A release raises the broker's count of attempts, so a limit of deliveries at the broker may bite.
    pub release_counts: bool,
    /// To have one delivery again, the broker sends others again, too: retry stays local.
    pub redelivery_disturbs_others: bool,
    /// A delivery that comes again comes behind others of its key.
    pub redelivery_breaks_key_order: bool,
    /// Who counts attempts.
    pub attempts: Attempts,
    /// The broker answers settlements, so [`Settlement::Confirmed`](crate::Settlement::Confirmed) means stored.
    pub settlement_confirmed: bool,
    /// A retry can be put off by the broker; otherwise the source holds it.
    pub delayed_retry: bool,
    /// A reject ends as a dead letter, or is discarded because the user said so; otherwise the source turns it into
    /// a release.
    pub reject_has_target: bool,
}

impl Capabilities {
    /// Nothing is known: what a plain stream of deliveries can do.
    pub const fn unknown() -> Self {
        Self {
            release_counts: false,
            redelivery_disturbs_others: false,
            redelivery_breaks_key_order: true,
            attempts: Attempts::Unknown,
            settlement_confirmed: false,
            delayed_retry: false,
            reject_has_target: true,
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::unknown()
    }
}

/// Who counts the attempts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempts {
    /// The broker, exactly: each failed delivery, and no other.
    Broker,
    /// The source, in this process, for as long as the message stays within the window's worth of memory.
    Source,
    /// Nobody: only "delivered before" is known.
    Unknown,
}
