//! A service that publishes, and is done when the broker has confirmed.

use std::{
    borrow::Cow,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tower_mq_delivery::{Capabilities, Drain, Origin, Publication, Receipt};
use tower_service::Service;

use super::{
    compose::{Routed, compose},
    confirm::{Confirms, Unconfirmed},
    connect::{Broker, Login},
    error::PublishError,
};
use crate::source::{Control, Health, Reconnect, SourceError, SourceErrorKind, reconnect::Established};

/// How to publish.
///
/// ```no_run
/// # async fn example() -> Result<(), tower_mq::BoxError> {
/// use tower::{Service, ServiceExt};
/// use tower_mq::{Message, Publication, source::rabbitmq::Publishing};
///
/// let publisher = Publishing::new().connect("amqp://guest:guest@localhost:5672/%2f").await?;
/// let mut orders = publisher.to("orders");
/// let message = Message::builder("{}").key("customer-7").build();
/// orders.ready().await?.call(Publication::new(message)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Publishing {
    window: usize,
    key_header: String,
    reconnect: Reconnect,
    login: Login,
}

impl Publishing {
    /// The defaults of the methods below.
    pub fn new() -> Self {
        Self {
            window: 1024,
            key_header: "amqp-partition-key".to_owned(),
            reconnect: Reconnect::new(),
            login: Login::new(),
        }
    }

    /// The most publications that are not confirmed; the service is not ready while there are as many. Zero is refused
    /// by [`connect`](Self::connect). Default: 1,024.
    pub const fn window(mut self, most: usize) -> Self {
        self.window = most;
        self
    }

    /// The header that a message's key is put into, unless the message has it. Default: `amqp-partition-key`.
    pub fn key_header(mut self, name: impl Into<String>) -> Self {
        self.key_header = name.into();
        self
    }

    /// How a lost connection is replaced, and for how long the first one is tried.
    pub const fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// How the broker's user interface calls the connection, in 1,024 bytes at most. Default: `tower-mq: publisher`.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.login.connection_name = Some(name.into());
        self
    }

    /// How often broker and publisher show each other that they are alive, in whole seconds. A broker that falls
    /// silent is noticed after twice as long. Default: what the URL says (`?heartbeat=10`), else 10 s.
    pub const fn heartbeat(mut self, interval: Duration) -> Self {
        self.login.heartbeat = Some(interval);
        self
    }

    /// How long one attempt to connect may take. Default: 10 s.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.login.connect_timeout = limit;
        self
    }

    /// Connects. The connection is the publisher's own: a broker that is short of memory or disk stops reading from
    /// those that publish, and settlements must not wait behind that.
    ///
    /// # Errors
    /// As [`Queue::connect`](super::Queue::connect).
    ///
    /// # Panics
    /// Outside of a tokio runtime. The connection lives in the runtime that this is called in.
    pub async fn connect(self, url: &str) -> Result<Publisher, SourceError> {
        let wrong = |what: String| SourceError::new(SourceErrorKind::Configuration, what);
        if self.window == 0 || self.window > Semaphore::MAX_PERMITS {
            return Err(wrong(format!(
                "publisher: window {} leaves no room; set it to 1 or more",
                self.window
            )));
        }
        let broker = Broker::new(url, "publisher", &self.login)?;
        let origin = Origin::new("publisher", "rabbitmq", self.window, Capabilities::unknown());
        let control = Control::new(Arc::new(origin));
        let (publications, unsent) = mpsc::unbounded_channel();
        let confirms =
            Confirms { control: control.clone(), broker, reconnect: self.reconnect, publications: unsent };
        let link = match confirms.connect(None).await? {
            Established::Yes(link) => link,
            Established::Closed => return Err(wrong("publisher: closed before it was connected".to_owned())),
        };
        let room = Arc::new(Semaphore::new(self.window));
        control.connected(1);
        tokio::spawn(confirms.run(link, room.clone()));
        Ok(Publisher {
            shared: Arc::new(Shared { publications, control, key_header: self.key_header.into() }),
            room: Room { room, reservation: Reservation::None },
            exchange: Cow::Borrowed(""),
            destination: None,
        })
    }
}

impl Default for Publishing {
    fn default() -> Self {
        Self::new()
    }
}

/// Publishes to RabbitMQ: persistent, mandatory, done when the broker has confirmed.
///
/// Clones share the connection and the window. The connection is closed when the last clone is dropped, and all that
/// was published is confirmed.
///
/// The message's headers and properties go with it. A message that was taken from RabbitMQ keeps all of them, with
/// their types, but for what would change its fate: the expiration, the user id, which the broker checks against the
/// connection, the headers `CC` and `BCC`, which would route the copy once more, `x-delivery-count`, and
/// [`ATTEMPT_HEADER`](crate::ATTEMPT_HEADER).
///
/// # Order
/// Publications go out in the order of the calls, over one connection. A publication that failed is not repeated.
///
/// # Cancel safety
/// A response that is dropped before its message was sent takes the message back. Later, the message may be stored.
///
/// # Errors
/// [`PublishError`] in the response. While the connection is lost, publications wait for the next one; `poll_ready`
/// fails only when there will be none.
///
/// # Cost
/// The payload is copied once, by the client.
pub struct Publisher {
    shared: Arc<Shared>,
    room: Room,
    exchange: Cow<'static, str>,
    destination: Option<Cow<'static, str>>,
}

struct Shared {
    publications: mpsc::UnboundedSender<Unconfirmed>,
    control: Control,
    key_header: Box<str>,
}

// Also where the connection is lost and does not come back.
impl Drop for Shared {
    fn drop(&mut self) {
        self.control.handle().close(Drain::Finish);
    }
}

impl Publisher {
    /// Publishes to this queue, where a publication names none; through an [`exchange`](Self::exchange), this is the
    /// routing key.
    #[must_use]
    pub fn to(&self, queue: impl Into<Cow<'static, str>>) -> Self {
        Self { destination: Some(queue.into()), ..self.clone() }
    }

    /// Publishes through this exchange, with the destination as routing key. Default: the default exchange, which
    /// knows every queue by its name.
    #[must_use]
    pub fn exchange(&self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { exchange: name.into(), ..self.clone() }
    }

    /// How its connection is doing.
    pub fn health(&self) -> Health {
        self.shared.control.handle().health()
    }

    fn route(&self, publication: &Publication) -> Result<Routed, PublishError> {
        let destination = publication.destination.as_deref().or(self.destination.as_deref());
        // An exchange may not care for the routing key; the default exchange knows no queue without a name.
        let routing_key = match destination {
            Some(destination) => destination,
            None if !self.exchange.is_empty() => "",
            None => {
                return Err(PublishError::Invalid(
                    "the publication names no destination, and neither does the publisher".into(),
                ));
            }
        };
        compose(&self.exchange, routing_key, &self.shared.key_header, publication)
    }
}

impl Clone for Publisher {
    // A clone is not ready.
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            room: Room { room: self.room.room.clone(), reservation: Reservation::None },
            exchange: self.exchange.clone(),
            destination: self.destination.clone(),
        }
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("exchange", &self.exchange)
            .field("destination", &self.destination)
            .field("health", &self.health().state)
            .finish_non_exhaustive()
    }
}

impl Service<Publication> for Publisher {
    type Response = Receipt;
    type Error = PublishError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.room.poll_reserve(cx).map_err(|_| PublishError::Ended)
    }

    fn call(&mut self, publication: Publication) -> ResponseFuture {
        let Some(permit) = self.room.take() else {
            return ResponseFuture(Response::Done(Some(PublishError::Invalid(
                "called before it was ready".into(),
            ))));
        };
        let routed = match self.route(&publication) {
            Ok(routed) => routed,
            Err(error) => return ResponseFuture(Response::Done(Some(error))),
        };
        let (reply, response) = oneshot::channel();
        // If nobody publishes any more, the dropped reply says so.
        let _ = self.shared.publications.send(Unconfirmed {
            routed,
            payload: publication.message.payload().clone(),
            reply,
            _permit: permit,
        });
        ResponseFuture(Response::Waiting(response))
    }
}

/// The room for one more publication.
struct Room {
    room: Arc<Semaphore>,
    reservation: Reservation,
}

enum Reservation {
    None,
    Waiting(Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>),
    Held(OwnedSemaphorePermit),
}

impl Room {
    fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AcquireError>> {
        loop {
            self.reservation = match &mut self.reservation {
                Reservation::Held(_) => return Poll::Ready(Ok(())),
                Reservation::None => match self.room.clone().try_acquire_owned() {
                    Ok(permit) => Reservation::Held(permit),
                    Err(_) => Reservation::Waiting(Box::pin(self.room.clone().acquire_owned())),
                },
                Reservation::Waiting(acquire) => match ready!(acquire.as_mut().poll(cx)) {
                    Ok(permit) => Reservation::Held(permit),
                    Err(error) => {
                        self.reservation = Reservation::None;
                        return Poll::Ready(Err(error));
                    }
                },
            }
        }
    }

    fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        match std::mem::replace(&mut self.reservation, Reservation::None) {
            Reservation::Held(permit) => Some(permit),
            _ => None,
        }
    }
}

/// The response of a [`Publisher`].
#[must_use = "it tells whether the broker has the message"]
pub struct ResponseFuture(Response);

enum Response {
    Waiting(oneshot::Receiver<Result<Receipt, PublishError>>),
    Done(Option<PublishError>),
}

impl Future for ResponseFuture {
    type Output = Result<Receipt, PublishError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Response::Waiting(response) => {
                Pin::new(response).poll(cx).map(|response| response.unwrap_or(Err(PublishError::Ended)))
            }
            Response::Done(error) => Poll::Ready(Err(error.take().unwrap_or(PublishError::Ended))),
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
    use tower_mq_delivery::Message;

    use super::*;

    fn publisher(window: usize) -> (Publisher, mpsc::UnboundedReceiver<Unconfirmed>) {
        let origin = Origin::new("publisher", "rabbitmq", window, Capabilities::unknown());
        let (publications, unsent) = mpsc::unbounded_channel();
        let control = Control::new(Arc::new(origin));
        let shared = Arc::new(Shared { publications, control, key_header: "key".into() });
        let room = Room { room: Arc::new(Semaphore::new(window)), reservation: Reservation::None };
        (Publisher { shared, room, exchange: Cow::Borrowed(""), destination: Some("orders".into()) }, unsent)
    }

    fn publication() -> Publication {
        Publication::new(Message::new("x"))
    }

    #[test]
    fn it_is_not_ready_while_a_window_is_not_confirmed() {
        let (publisher, mut unsent) = publisher(1);
        let (mut one, mut other) = (task::spawn(publisher.clone()), task::spawn(publisher));
        assert_ready_ok!(one.enter(|cx, mut one| one.poll_ready(cx)));
        assert_ready_ok!(one.enter(|cx, mut one| one.poll_ready(cx)), "it stays ready");
        let mut response = task::spawn(one.call(publication()));
        assert_pending!(other.enter(|cx, mut other| other.poll_ready(cx)));
        let publication = unsent.try_recv().expect("it was published");
        assert_pending!(other.enter(|cx, mut other| other.poll_ready(cx)), "it is not confirmed");
        publication.reply.send(Ok(Receipt::new())).expect("it is waited for");
        drop(publication._permit);
        assert_ready_ok!(response.poll());
        assert!(other.is_woken());
        assert_ready_ok!(other.enter(|cx, mut other| other.poll_ready(cx)));
    }

    #[test]
    fn a_reservation_is_given_back_and_a_clone_has_none() {
        let (publisher, _unsent) = publisher(1);
        let (mut one, mut other) = (task::spawn(publisher.clone()), task::spawn(publisher));
        assert_ready_ok!(one.enter(|cx, mut one| one.poll_ready(cx)));
        let error = assert_ready!(task::spawn(one.clone().call(publication())).poll());
        assert!(matches!(error, Err(PublishError::Invalid(_))));
        assert_pending!(other.enter(|cx, mut other| other.poll_ready(cx)));
        drop(one);
        assert!(other.is_woken());
        assert_ready_ok!(other.enter(|cx, mut other| other.poll_ready(cx)));
    }

    #[test]
    fn a_response_that_is_dropped_takes_an_unsent_message_back() {
        let (mut publisher, mut unsent) = publisher(1);
        assert_ready_ok!(task::spawn(()).enter(|cx, _| publisher.poll_ready(cx)));
        drop(publisher.call(publication()));
        assert!(unsent.try_recv().expect("it was published").reply.is_closed());
    }

    #[test]
    fn an_ended_publisher_says_so() {
        let (mut publisher, unsent) = publisher(1);
        assert_ready_ok!(task::spawn(()).enter(|cx, _| publisher.poll_ready(cx)));
        drop(unsent);
        let response = assert_ready!(task::spawn(publisher.call(publication())).poll());
        assert!(matches!(response, Err(PublishError::Ended)));
        publisher.room.room.close();
        let ready = assert_ready!(task::spawn(()).enter(|cx, _| publisher.poll_ready(cx)));
        assert!(matches!(ready, Err(PublishError::Ended)));
    }
}
