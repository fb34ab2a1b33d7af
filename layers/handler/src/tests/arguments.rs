//! What a function is given, and what is not asked of it.

use std::{cell::Cell, io, rc::Rc, str::Utf8Error, time::Duration};

use bytes::Bytes;
use tower_mq_delivery::{
    BoxError, Capabilities, Failure, Generation, Headers, Message, Origin, Outcome, Value,
};

use super::{answer, is_caused_by, reject};
use crate::{Attempt, Destination, FromMessage, Key, Rejection, handler};

fn message() -> Message {
    let origin = Origin::new("orders", "test", 8, Capabilities::unknown());
    Message::builder("12")
        .key("account-7")
        .attempt(3)
        .header("tenant", "blue")
        .generation(Generation::first(origin.into()))
        .build()
}

#[tokio::test]
async fn each_extractor_gives_its_part_of_the_message() {
    #[allow(clippy::too_many_arguments)] // as many as there may be
    async fn all(
        text: String,
        payload: Bytes,
        Key(key): Key,
        headers: Headers,
        Attempt(attempt): Attempt,
        Destination(destination): Destination,
        message: Message,
        none: Option<Never>,
    ) {
        assert_eq!((&*text, &payload), ("12", message.payload()));
        assert_eq!(payload.as_ptr(), message.payload().as_ptr(), "the payload is not copied");
        assert_eq!(key.as_deref(), Some(&b"account-7"[..]));
        assert_eq!(headers.get("tenant"), Some(Value::from("blue")));
        assert_eq!(attempt, Some(3));
        assert_eq!(destination, "orders");
        assert!(none.is_none());
    }
    assert_eq!(answer::<_, Message>(handler(all), message()).await.expect("handled"), Outcome::Ack);
}

#[derive(Debug)]
struct Never;

impl FromMessage for Never {
    fn from_message(_: &Message) -> Result<Self, Rejection> {
        Err(Rejection::missing::<Self>("there is none"))
    }
}

#[tokio::test]
async fn an_empty_key_is_a_key_and_an_absent_one_is_not() {
    async fn key_is_some(key: Key) -> Outcome {
        if key.is_some() { Outcome::Ack } else { Outcome::Release }
    }
    let keyed = Message::builder("").key("").build();
    assert_eq!(answer::<_, Message>(handler(key_is_some), keyed).await.expect("handled"), Outcome::Ack);
    let keyless = Message::new("");
    assert_eq!(answer::<_, Message>(handler(key_is_some), keyless).await.expect("handled"), Outcome::Release);
}

#[tokio::test]
async fn a_handler_returns_what_it_likes() {
    async fn outcome_of<F, Args>(function: F) -> Result<Outcome, BoxError>
    where
        F: crate::HandlerFn<Args, Future: Send, Output: tower_mq_delivery::IntoAnswer<Message>>,
        Args: crate::Arguments<Work = Message>,
    {
        answer::<_, Message>(handler(function), message()).await
    }
    assert_eq!(outcome_of(|| async {}).await.expect("handled"), Outcome::Ack);
    assert_eq!(outcome_of(|| async { Outcome::Release }).await.expect("handled"), Outcome::Release);
    assert_eq!(outcome_of(|| async { Ok::<_, String>(()) }).await.expect("handled"), Outcome::Ack);
    let error =
        outcome_of(|| async { Err::<Outcome, _>(io::Error::other("down")) }).await.expect_err("failed");
    assert!(error.is::<io::Error>());
    let later = Duration::from_secs(9);
    let error = outcome_of(move || async move { Err::<(), _>(Failure::retry_after("down", later)) }).await;
    assert_eq!(Failure::find(&*error.expect_err("failed")), Some(&Outcome::Retry { after: later }));
}

#[tokio::test]
async fn what_is_captured_need_not_be_sync() {
    let calls = Cell::new(0);
    let service = handler(move |_: Message| {
        calls.set(calls.get() + 1);
        async {}
    });
    answer::<_, Message>(service.clone(), message()).await.expect("handled");
    tokio::spawn(answer::<_, Message>(service, message())).await.expect("joined").expect("handled");
    // Nor do arguments need to be `Send`, as long as they are not held across an await.
    struct Local(#[allow(dead_code)] Rc<()>);
    impl FromMessage for Local {
        fn from_message(_: &Message) -> Result<Self, Rejection> {
            Ok(Self(Rc::new(())))
        }
    }
    let service = handler(|local: Local| {
        drop(local);
        async {}
    });
    tokio::spawn(answer::<_, Message>(service, message())).await.expect("joined").expect("handled");
}

#[tokio::test]
async fn a_message_that_cannot_be_decoded_is_rejected_and_the_reason_names_the_argument() {
    async fn never_called(_: Key, _: String) {
        panic!("called");
    }
    let broken = Message::new(&b"\xff"[..]);
    let error = answer::<_, Message>(handler(never_called), broken).await.expect_err("rejected");
    let reason = "`String` cannot be taken out of the message: \
                  invalid utf-8 sequence of 1 bytes from index 0";
    assert_eq!(reject(&error), reason);
    assert_eq!(error.to_string(), reason);
    let rejection = error.downcast_ref::<Rejection>().expect("typed");
    assert_eq!((rejection.extractor(), rejection.is_missing()), ("String", false));
    assert!(is_caused_by::<Utf8Error>(&error));
}

#[tokio::test]
async fn an_option_is_none_for_what_is_absent_and_rejects_what_is_malformed() {
    assert!(Option::<Never>::from_message(&message()).expect("absent is fine").is_none());
    let broken = Message::new(&b"\xff"[..]);
    let rejection = Option::<String>::from_message(&broken).expect_err("malformed is not");
    assert!(!rejection.is_missing());
}

#[tokio::test]
async fn a_rejection_that_a_handler_passes_on_still_rejects() {
    async fn looks(text: Result<String, Rejection>) -> Result<(), BoxError> {
        let _text = text?;
        Ok(())
    }
    let broken = Message::new(&b"\xff"[..]);
    let error = answer::<_, Message>(handler(looks), broken).await.expect_err("passed on");
    assert!(reject(&error).starts_with("`String`"));
}
