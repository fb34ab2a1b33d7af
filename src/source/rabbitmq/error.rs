//! What a refusal of the broker means: whether another attempt can help, and what to tell the user.

use std::borrow::Cow;

use lapin::{
    ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};

use tower_mq_delivery::BoxError;

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

/// Why a message was not published, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// It cannot be published: no destination, a name that is too long for AMQP, or more headers than the broker takes.
    #[error("the message cannot be published: {0}")]
    Invalid(Cow<'static, str>),
    /// No queue got it: there is none of this name, or the exchange has no binding for it. It is not stored.
    #[error("the message could not be routed: {destination} leads to no queue")]
    Unroutable {
        /// Where it was to go.
        destination: String,
    },
    /// The broker could not store it: the queue is full, or failed.
    #[error("the broker could not store the message for {destination}")]
    Refused {
        /// Where it was to go.
        destination: String,
    },
    /// The connection was lost, or the exchange is not there, before the broker had confirmed it. It may be stored.
    #[error("the broker did not confirm the message for {destination}: {error}")]
    Lost {
        /// Where it was to go.
        destination: String,
        /// What was lost.
        #[source]
        error: BoxError,
    },
    /// The publisher has ended: the broker refused its connection for good, or its runtime ended. What had
    /// been sent may be stored.
    #[error("the publisher has ended; its health says why")]
    Ended,
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
