//! What happens to a message whose handler failed without a decision of its own.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::{Message, Outcome};

/// An error as policies see it.
pub type DynError = dyn Error + Send + Sync + 'static;

type Judge = dyn Fn(&Message, &DynError) -> Outcome + Send + Sync;

/// Turns an error into an [`Outcome`]: set it once on the settle layer, it travels in the message.
///
/// A decision of the error itself ([`Failure`](crate::Failure)) goes before any policy.
///
/// The default is [`retry`](Self::retry)`(5)`: a growing delay from 1 s to 60 s, and a reject after the fifth
/// failed attempt.
///
/// ```
/// use tower_mq_delivery::{ErrorPolicy, Outcome};
///
/// let policy = ErrorPolicy::from_fn(|message, error| match message.redelivered() {
///     false => Outcome::Release,
///     true => Outcome::reject(error.to_string()),
/// });
/// # let _ = policy;
/// ```
#[derive(Clone)]
pub struct ErrorPolicy(Arc<Kind>);

enum Kind {
    Retry { attempts: u32, from: Duration, to: Duration },
    Reject,
    Fn(Box<Judge>),
}

impl ErrorPolicy {
    /// Retries with a doubling delay, from 1 s to 60 s, and rejects when `attempts` attempts have failed.
    ///
    /// A message whose attempts the broker does not count is taken for its second attempt when it was delivered
    /// before.
    pub fn retry(attempts: u32) -> Self {
        Self::retry_within(attempts, Duration::from_secs(1), Duration::from_secs(60))
    }

    /// [`retry`](Self::retry) with delays of your own.
    pub fn retry_within(attempts: u32, from: Duration, to: Duration) -> Self {
        Self(Arc::new(Kind::Retry { attempts, from, to }))
    }

    /// Rejects at the first error.
    pub fn reject() -> Self {
        Self(Arc::new(Kind::Reject))
    }

    /// Any judgement.
    pub fn from_fn<F>(judge: F) -> Self
    where
        F: Fn(&Message, &DynError) -> Outcome + Send + Sync + 'static,
    {
        Self(Arc::new(Kind::Fn(Box::new(judge))))
    }

    /// What happens to `message`, which failed with `error`.
    pub fn judge(&self, message: &Message, error: &DynError) -> Outcome {
        match &*self.0 {
            Kind::Retry { attempts, from, to } => retry(message, error, *attempts, *from, *to),
            Kind::Reject => Outcome::reject(error.to_string()),
            Kind::Fn(judge) => judge(message, error),
        }
    }

    /// The judgement of the default policy, without making one.
    pub(crate) fn judge_by_default(message: &Message, error: &DynError) -> Outcome {
        retry(message, error, 5, Duration::from_secs(1), Duration::from_secs(60))
    }
}

fn retry(message: &Message, error: &DynError, attempts: u32, from: Duration, to: Duration) -> Outcome {
    let attempt = message.attempt().unwrap_or(if message.redelivered() { 2 } else { 1 });
    if attempt >= attempts {
        return Outcome::reject(error.to_string());
    }
    let doubled = from.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
    Outcome::Retry { after: doubled.min(to) }
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        Self::retry(5)
    }
}

impl fmt::Debug for ErrorPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Retry { attempts, from, to } => f
                .debug_struct("Retry")
                .field("attempts", attempts)
                .field("from", from)
                .field("to", to)
                .finish(),
            Kind::Reject => f.write_str("Reject"),
            Kind::Fn(_) => f.write_str("Fn"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(policy: &ErrorPolicy, attempt: u32) -> Outcome {
        let message = Message::builder("").attempt(attempt).build();
        policy.judge(&message, &std::io::Error::other("down"))
    }

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_the_last_attempt_rejects() {
        let policy = ErrorPolicy::retry_within(40, Duration::from_secs(1), Duration::from_secs(5));
        let secs = |n| Outcome::Retry { after: Duration::from_secs(n) };
        assert_eq!([1, 2, 3, 4, 39].map(|n| after(&policy, n)), [1, 2, 4, 5, 5].map(secs));
        assert_eq!(after(&policy, 40), Outcome::reject("down"));
    }

    #[test]
    fn a_redelivered_message_of_unknown_count_starts_at_two() {
        let message = Message::builder("").redelivered(true).build();
        let outcome = ErrorPolicy::retry(2).judge(&message, &std::io::Error::other("down"));
        assert_eq!(outcome, Outcome::reject("down"));
    }
}
