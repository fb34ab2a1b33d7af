//! A panic is an error like others, and is heard of.

use std::sync::Arc;

use parking_lot::Mutex;
use tower::{Service, ServiceExt};
use tower_mq_delivery::{
    Batch, BoxError, Capabilities, DynError, Event, Failure, Generation, Message, Origin, Outcomes, Panicked,
    Work,
};

use crate::{FromMessage, Rejection, handler};

/// For each panic that was reported, whether the message is known.
type Heard = Arc<Mutex<Vec<bool>>>;

fn observed() -> (Arc<Generation>, Heard) {
    let origin = Origin::new("orders", "test", 8, Capabilities::unknown());
    let heard = Heard::default();
    let theirs = heard.clone();
    origin.observe(Arc::new(move |_: &Origin, event: &Event<'_>| {
        let Event::Panicked { message } = event else { panic!("something else: {event:?}") };
        theirs.lock().push(message.is_some());
    }));
    (Generation::first(origin.into()), heard)
}

/// The panic's text, of a handler that was asked twice.
async fn panics<S>(mut service: S) -> String
where
    S: Service<Message, Error = BoxError>,
{
    let (generation, heard) = observed();
    let message = Message::builder("").generation(generation).build();
    let mut text = String::new();
    for times in 1..=2 {
        let ready = service.ready().await.expect("ready");
        let Err(error) = ready.call(message.clone()).await else { panic!("it did not panic") };
        assert!(error.is::<Panicked>() && Failure::find(&*error).is_none(), "an error for the policy");
        assert_eq!(*heard.lock(), vec![true; times]);
        text = error.to_string();
    }
    text
}

struct Explosive;

impl FromMessage for Explosive {
    fn from_message(_: &Message) -> Result<Self, Rejection> {
        panic!("while decoding");
    }
}

#[tokio::test]
async fn a_panic_anywhere_in_a_handler_is_an_error_and_is_reported_once() {
    async fn late(message: Message) {
        tokio::task::yield_now().await;
        assert!(message.attempt().is_some(), "in the future");
    }
    assert_eq!(panics(handler(late)).await, "panicked: in the future");
    let early = |message: Message| {
        assert!(message.attempt().is_some(), "in the function");
        async {}
    };
    assert_eq!(panics(handler(early)).await, "panicked: in the function");
    assert_eq!(panics(handler(|_: Explosive| async {})).await, "panicked: while decoding");
}

#[tokio::test]
async fn a_panic_fails_all_members_of_a_batch_but_those_that_were_rejected() {
    async fn explodes(_: Batch<String>) {
        panic!("boom");
    }
    let (generation, heard) = observed();
    let payloads = [&b"\xff"[..], b"a", b"b"];
    let members = payloads.map(|p| Message::builder(p).generation(generation.clone()).build());
    let answer = handler(explodes).oneshot(Batch::from(members.to_vec())).await;
    let Ok(Outcomes::Each(results)) = &answer else { panic!("not each: {answer:?}") };
    let errors: Vec<_> = results.iter().map(|r| r.as_ref().expect_err("failed").to_string()).collect();
    assert!(errors[0].starts_with("`String` cannot"));
    assert_eq!(errors[1..], ["panicked: boom"; 2]);
    assert_eq!(*heard.lock(), [false], "nobody knows which member it was");
    let mut work = Batch::from(members.to_vec());
    let undecided = &mut |_: &Message, error: &DynError| Failure::find(error).is_none();
    let narrowed = work.narrow(answer, &mut tower_mq_delivery::Aside::new(), undecided);
    assert!(narrowed.is_none(), "a retry layer runs them again");
    assert_eq!(work.len(), 2);
}
