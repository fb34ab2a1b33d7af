//! What a refusal of the broker means: whether another attempt can help, and what to tell the user.

use std::{borrow::Cow, error::Error, fmt};

use lapin::{
    ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};

use tower_mq_delivery::{BoxError, NotStored};

use crate::source::{
    SourceError,
    SourceErrorKind::{self, Authentication, Configuration, NotFound, Protocol, Refused},
    reconnect::Refusal,
};

/// How far an attempt to connect had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Until the connection is open.
    Login,
    /// On the open connection.
    Channel,
}

/// Judges the error that ended an attempt to connect.
pub(super) fn refusal(broker: &str, user: &str, stage: Stage, error: lapin::Error) -> Refusal {
    let permanent = |kind: SourceErrorKind, what: String, error| {
        Refusal::Permanent(SourceError::new(kind, format!("{broker}: {what}")).with_source(error))
    };
    match kind(&error, stage) {
        Some(Authentication) => permanent(Authentication, format!("user `{user}` was not let in"), error),
        Some(NotFound) => permanent(NotFound, "it is not there".to_owned(), error),
        Some(kind) => permanent(kind, "the broker refused".to_owned(), error),
        None => Refusal::Transient(error.into()),
    }
}

/// The kind of an error that no later attempt can change.
fn kind(error: &lapin::Error, stage: Stage) -> Option<SourceErrorKind> {
    let refused = match error.kind() {
        ErrorKind::ProtocolError(refused) => refused,
        ErrorKind::AuthProviderError(_) => return Some(Authentication),
        ErrorKind::InvalidProtocolVersion(_) | ErrorKind::SerialisationError(_) => return Some(Protocol),
        ErrorKind::NoDefaultRuntime => return Some(Configuration),
        _ => return None,
    };
    let text = refused.get_message();
    match refused.kind() {
        // A queue whose node is down is there, and will be back.
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) if text.as_str().contains("down or inaccessible") => {
            None
        }
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Some(NotFound),
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) if stage == Stage::Login => Some(Authentication),
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED | AMQPSoftError::PRECONDITIONFAILED) => {
            Some(Refused)
        }
        // How the broker says that there is no such virtual host, or that it is not for this user.
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) if text.as_str().contains("not found") => {
            Some(NotFound)
        }
        AMQPErrorKind::Hard(AMQPHardError::INVALIDPATH) => Some(NotFound),
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED | AMQPHardError::NOTIMPLEMENTED) => Some(Refused),
        _ => None,
    }
}

/// Why a message was not published, or may not have been. Where it is certainly not stored, [`NotStored`] is the source
/// of the error.
#[derive(Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// It cannot be published: no destination, a name that is too long for AMQP, or more headers than the broker takes.
    /// It is not stored.
    Invalid(Cow<'static, str>),
    /// No queue got it: there is none of this name, or the exchange has no binding for it. It is not stored.
    Unroutable {
        /// Where it was to go.
        destination: String,
    },
    /// The broker answered that a queue has not stored it: that queue is full, or failed.
    Refused {
        /// Where it was to go.
        destination: String,
        /// It went through an exchange, and other queues may have stored it. Without one it is not stored.
        elsewhere: bool,
    },
    /// The connection was lost, or the exchange is not there, before the broker had confirmed it. It may be stored.
    Lost {
        /// Where it was to go.
        destination: String,
        /// What was lost.
        error: BoxError,
    },
    /// The publisher has ended: the broker refused its connection for good, or its runtime ended. What had
    /// been sent may be stored.
    Ended,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => write!(f, "the message cannot be published: {what}"),
            Self::Unroutable { destination } => {
                write!(f, "the message could not be routed: {destination} leads to no queue")
            }
            Self::Refused { destination, .. } => {
                write!(f, "the broker could not store the message for {destination}")
            }
            Self::Lost { destination, error } => {
                write!(f, "the broker did not confirm the message for {destination}: {error}")
            }
            Self::Ended => f.write_str("the publisher has ended; its health says why"),
        }
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid(_) | Self::Unroutable { .. } | Self::Refused { elsewhere: false, .. } => {
                Some(&NotStored)
            }
            Self::Lost { error, .. } => Some(&**error),
            Self::Refused { elsewhere: true, .. } | Self::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::AMQPError;

    use super::*;

    fn judged(kind: impl Into<AMQPErrorKind>, text: &str, stage: Stage) -> Option<SourceErrorKind> {
        let error = lapin::Error::from(ErrorKind::ProtocolError(AMQPError::new(kind.into(), text.into())));
        match refusal("queue `orders` at host:1", "guest", stage, error) {
            Refusal::Permanent(error) => {
                assert!(error.to_string().contains("queue `orders` at host:1"));
                Some(error.kind())
            }
            Refusal::Transient(_) => None,
        }
    }

    #[test]
    fn what_is_certainly_not_stored_says_so() {
        let destination = || "queue `orders`".to_owned();
        let error = || BoxError::from("connection reset");
        let errors = [
            (PublishError::Invalid("no name".into()), true),
            (PublishError::Unroutable { destination: destination() }, true),
            (PublishError::Refused { destination: destination(), elsewhere: false }, true),
            (PublishError::Refused { destination: destination(), elsewhere: true }, false),
            (PublishError::Lost { destination: destination(), error: error() }, false),
            (PublishError::Ended, false),
        ];
        for (error, not_stored) in errors {
            assert_eq!(NotStored::is_in(&error), not_stored, "{error}");
        }
    }

    #[test]
    fn what_no_attempt_can_change_is_permanent() {
        use AMQPErrorKind::{Hard, Soft};
        let refused = Soft(AMQPSoftError::ACCESSREFUSED);
        assert_eq!(judged(refused.clone(), "login refused", Stage::Login), Some(Authentication));
        assert_eq!(judged(refused, "no access", Stage::Channel), Some(Refused));
        let missing = Soft(AMQPSoftError::NOTFOUND);
        assert_eq!(judged(missing.clone(), "no queue 'orders' in vhost '/'", Stage::Channel), Some(NotFound));
        let no_vhost = Hard(AMQPHardError::NOTALLOWED);
        assert_eq!(judged(no_vhost, "vhost shop not found", Stage::Login), Some(NotFound));
        assert_eq!(
            judged(missing, "home node 'a' of durable queue is down or inaccessible", Stage::Channel),
            None
        );
        assert_eq!(judged(Hard(AMQPHardError::CONNECTIONFORCED), "shutdown", Stage::Login), None);
    }
}
