//! One way to a connection, for sources and publishers.

use std::{fmt, sync::Arc, time::Duration};

use lapin::{
    Channel, Connection, ConnectionProperties, Consumer,
    options::{BasicConsumeOptions, BasicQosOptions, ConfirmSelectOptions},
    types::{FieldTable, ShortString},
    uri::{AMQPScheme, AMQPUri},
};
use tokio::{runtime::Handle, time::timeout};

use super::error::{Stage, refusal};
use crate::source::{SourceError, SourceErrorKind, reconnect::Refusal};

/// The last words with a broker take no longer than this.
pub(super) const CLOSE_AT_MOST: Duration = Duration::from_secs(4);

/// How to log in, and how long anything may take.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) connection_name: Option<String>,
    pub(super) heartbeat: Option<Duration>,
    pub(super) connect_timeout: Duration,
}

impl Login {
    pub(super) const fn new() -> Self {
        Self { connection_name: None, heartbeat: None, connect_timeout: Duration::from_secs(10) }
    }
}

/// Bytes of a connection's name: more than anybody reads, and far from the end of the first frame.
const CONNECTION_NAME_AT_MOST: usize = 1024;

/// A broker, and what is wanted there. It never shows the password.
pub(super) struct Broker {
    uri: AMQPUri,
    name: String,
    connection_name: String,
    connect_timeout: Duration,
}

impl Broker {
    /// Reads the URL. `what` is wanted there: "queue `orders`".
    pub(super) fn new(url: &str, what: &str, login: &Login) -> Result<Self, SourceError> {
        let wrong = |what: String| SourceError::new(SourceErrorKind::Configuration, what);
        let mut uri: AMQPUri = url.parse().map_err(|reason: String| {
            // The parser may quote what it could not read, with the password in it.
            let reason = if reason.contains(url) {
                "it is not of the form amqp://user:password@host"
            } else {
                &reason
            };
            wrong(format!("the broker's URL for {what} cannot be read: {reason}"))
        })?;
        if uri.scheme == AMQPScheme::AMQPS {
            // The client would go on in plain text, password first, and say nothing.
            return Err(wrong(format!("{what}: `amqps` is asked for, and this build has no TLS")));
        }
        if let Some(host) = bracketed(url) {
            // The parser takes an IPv6 address for an absent host.
            host.clone_into(&mut uri.authority.host);
        }
        if let Some(heartbeat) = login.heartbeat {
            let seconds = u16::try_from(heartbeat.as_secs()).ok().filter(|seconds| *seconds > 0);
            let seconds = seconds.ok_or_else(|| {
                wrong(format!(
                    "heartbeat {heartbeat:?} for {what}: the broker counts it in whole seconds, 1 to 65535"
                ))
            })?;
            uri.query.heartbeat = Some(seconds);
        } else {
            uri.query.heartbeat.get_or_insert(10);
        }
        let (host, port, vhost) = (&uri.authority.host, uri.authority.port, &uri.vhost);
        let name = format!("{what} on RabbitMQ at {host}:{port}, virtual host `{vhost}`");
        let connection_name = login.connection_name.clone().unwrap_or_else(|| format!("tower-mq: {what}"));
        if connection_name.len() > CONNECTION_NAME_AT_MOST {
            // It goes out before frames of more than 4,096 bytes are agreed on: the broker would not answer.
            let long = connection_name.len();
            let what =
                format!("a connection name of {long} bytes for {what}: at most {CONNECTION_NAME_AT_MOST}");
            return Err(wrong(what));
        }
        Ok(Self { uri, name, connection_name, connect_timeout: login.connect_timeout })
    }

    /// What is wanted, and where, for errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Connects, opens a channel, and does with it what `prepare` does; all in time.
    async fn open<T>(
        &self,
        prepare: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> Result<(T, Channel, Arc<Connection>), Refusal> {
        let attempt = async {
            // The client's own recovery stays off: it is silent, and counts delivery tags anew.
            let properties =
                ConnectionProperties::default().with_connection_name(self.connection_name.as_str().into());
            let connection = Connection::connect_uri(self.uri.clone(), properties).await;
            let connection = Arc::new(connection.map_err(|error| self.refusal(Stage::Login, error))?);
            let mut half_open = HalfOpen(Some(connection.clone()));
            let prepared = async {
                let channel = connection.create_channel().await?;
                Ok((prepare(&channel).await?, channel))
            };
            let (prepared, channel) = prepared.await.map_err(|error| self.refusal(Stage::Channel, error))?;
            half_open.0 = None;
            Ok((prepared, channel, connection))
        };
        timeout(self.connect_timeout, attempt).await.unwrap_or_else(|_| {
            Err(Refusal::Transient(format!("no answer within {:?}", self.connect_timeout).into()))
        })
    }

    fn refusal(&self, stage: Stage, error: lapin::Error) -> Refusal {
        refusal(&self.name, &self.uri.authority.userinfo.username, stage, error)
    }

    /// Connects and consumes.
    pub(super) async fn consume(
        &self,
        queue: &ShortString,
        tag: &ShortString,
        prefetch: u16,
    ) -> Result<Link, Refusal> {
        let consume = async |channel: &Channel| {
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let options = BasicConsumeOptions::default();
            channel.basic_consume(queue.clone(), tag.clone(), options, FieldTable::default()).await
        };
        let (consumer, channel, connection) = self.open(consume).await?;
        Ok(Link { consumer, channel, connection })
    }

    /// Connects and asks for confirmations.
    pub(super) async fn publish(&self) -> Result<(Arc<Connection>, Channel), Refusal> {
        let confirm = async |channel: &Channel| channel.confirm_select(ConfirmSelectOptions::default()).await;
        let ((), channel, connection) = self.open(confirm).await?;
        Ok((connection, channel))
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broker").field(&self.name).finish()
    }
}

/// A connection that somebody may still give up. Then it is closed: forgotten, it would stay open.
struct HalfOpen(Option<Arc<Connection>>);

impl Drop for HalfOpen {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { timeout(CLOSE_AT_MOST, close(&connection)).await });
        }
    }
}

/// A consumer and what it lives on.
///
/// The consumer must not be dropped while the connection lives: the client would cancel it, and a queue with a single
/// active consumer would hand over too early.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) consumer: Consumer,
    pub(super) channel: Channel,
    pub(super) connection: Arc<Connection>,
}

/// Ends a connection; what goes wrong then does not matter.
pub(super) async fn close(connection: &Connection) {
    if let Err(error) = connection.close(200, ShortString::default()).await {
        tracing::debug!(%error, "the connection was not closed in good order");
    }
}

/// The host of a URL whose host is an IPv6 address.
fn bracketed(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(host.strip_prefix('[')?.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(url: &str) -> Result<Broker, SourceError> {
        Broker::new(url, "queue `orders`", &Login::new())
    }

    #[test]
    fn a_broker_is_named_without_its_password() {
        let broker = broker("amqp://user:s3cret@mq.example:1234/%2f").expect("it is well formed");
        assert_eq!(broker.name(), "queue `orders` on RabbitMQ at mq.example:1234, virtual host `/`");
        assert!(!format!("{broker:?}").contains("s3cret"));
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in [
            "amqp:user:s3cret",
            "http://user:s3cret@host",
            "//user:s3cret@host",
            "amqp://u:s3cret@host?heartbeat=x",
        ] {
            let error = broker(url).expect_err(url);
            assert_eq!(error.kind(), SourceErrorKind::Configuration);
            let text = format!("{error} {error:?}");
            assert!(text.contains("orders") && !text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_connection_name_that_the_broker_would_not_answer_is_refused() {
        let named = |length| Login { connection_name: Some("n".repeat(length)), ..Login::new() };
        Broker::new("amqp://host", "queue `orders`", &named(CONNECTION_NAME_AT_MOST)).expect("it fits");
        let error = Broker::new("amqp://host", "queue `orders`", &named(CONNECTION_NAME_AT_MOST + 1));
        let error = error.expect_err("it is too long");
        assert_eq!(error.kind(), SourceErrorKind::Configuration);
        assert!(error.to_string().contains("queue `orders`"));
    }

    #[test]
    fn an_ipv6_address_is_a_host() {
        let broker = broker("amqp://user:pass@[::1]:5673/shop").expect("it is well formed");
        assert!(broker.name().contains("at ::1:5673, virtual host `shop`"), "{}", broker.name());
    }

    #[test]
    fn a_heartbeat_below_one_second_is_refused() {
        let login = Login { heartbeat: Some(Duration::from_millis(10)), ..Login::new() };
        let error = Broker::new("amqp://host", "queue `orders`", &login).expect_err("it is too short");
        assert_eq!(error.kind(), SourceErrorKind::Configuration);
    }
}
