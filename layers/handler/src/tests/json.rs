//! Payloads in JSON.

use serde::Deserialize;
use tower_mq_delivery::{Batch, Message, Outcome, Outcomes};

use super::{answer, is_caused_by, reject};
use crate::{FromMessage, Json, handler};

#[derive(Debug, Deserialize, PartialEq)]
struct Order {
    id: u64,
}

#[tokio::test]
async fn a_payload_is_decoded_whatever_its_content_type_says() {
    async fn order(Json(order): Json<Order>) {
        assert_eq!(order, Order { id: 7 });
    }
    let plain = Message::builder(r#"{"id":7}"#).content_type("text/plain").build();
    assert_eq!(answer::<_, Message>(handler(order), plain).await.expect("handled"), Outcome::Ack);
}

#[tokio::test]
async fn what_is_not_the_type_is_rejected_and_the_reason_tells_why() {
    async fn order(_: Json<Order>) {}
    let error = answer::<_, Message>(handler(order), Message::new("{}")).await.expect_err("rejected");
    assert_eq!(
        reject(&error),
        "`Json<Order>` cannot be taken out of the message: missing field `id` at line 1 column 2"
    );
    assert!(is_caused_by::<serde_json::Error>(&error));
}

#[test]
fn an_empty_payload_is_absent_and_a_malformed_one_is_not() {
    let empty = Message::new("");
    assert_eq!(Option::<Json<Order>>::from_message(&empty).expect("a tombstone"), None);
    assert!(Json::<Order>::from_message(&empty).expect_err("no order").is_missing());
    assert!(Option::<Json<Order>>::from_message(&Message::new("{}")).is_err());
}

#[tokio::test]
async fn members_of_a_batch_are_decoded_one_by_one() {
    async fn orders(batch: Batch<Json<Order>>) {
        assert_eq!(batch.iter().map(|order| order.id).collect::<Vec<_>>(), [1, 2]);
    }
    let members = [r#"{"id":1}"#, "?", r#"{"id":2}"#].map(Message::new);
    let outcomes = answer(handler(orders), Batch::from(members.to_vec())).await.expect("handled");
    let Outcomes::Each(results) = outcomes else { panic!("one for all") };
    assert!(matches!(&results[..], [Ok(Outcome::Ack), Err(_), Ok(Outcome::Ack)]));
}
