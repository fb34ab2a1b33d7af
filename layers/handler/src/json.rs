//! A payload in JSON.

use std::ops::{Deref, DerefMut};

use serde::de::DeserializeOwned;
use tower_mq_delivery::Message;

use crate::{FromMessage, Rejection};

/// The payload, decoded from JSON. The content type is not looked at: many producers set none.
///
/// An empty payload is absent, not malformed: `Option<Json<T>>` is `None` for the tombstones of a compacted topic.
///
/// ```
/// use tower_mq_handler::{Json, handler};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     id: u64,
/// }
///
/// async fn ship(Json(order): Json<Order>) {
///     println!("order {} leaves", order.id);
/// }
///
/// let service = handler(ship);
/// ```
///
/// # Security
/// The text of a rejection, which becomes the reject's reason, may quote a value of the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromMessage for Json<T> {
    fn from_message(message: &Message) -> Result<Self, Rejection> {
        match message.payload() {
            payload if payload.is_empty() => Err(Rejection::missing::<Self>("the payload is empty")),
            payload => serde_json::from_slice(payload).map(Self).map_err(Rejection::invalid::<Self>),
        }
    }
}

impl<T> Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Json<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> From<T> for Json<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}
