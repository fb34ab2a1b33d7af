//! How to test a stack without a broker: `cargo test --example mock_test`.
//!
//! The program below serves orders. Its tests need no broker and no waiting: deliveries are scripted, handlers are
//! completed by hand, and the clock is paused.

use std::time::Duration;

use tower::{BoxError, Service, ServiceBuilder, timeout::TimeoutLayer};
use tower_mq::{
    Delivery, ErrorPolicy, FailureExt, Key, Message, Outcome, PartitionLayer, SettleLayer, Settled, handler,
    serve, source::memory,
};

/// The stack: what the program serves, and what the tests test. Only the handler is exchanged.
fn stack<H>(handler: H) -> impl Service<Delivery, Response = Settled, Error = BoxError, Future: Send> + Send
where
    H: Service<Message, Response = Outcome, Error = BoxError, Future: Send> + Clone + Send + 'static,
{
    ServiceBuilder::new()
        .layer(PartitionLayer::by_key(2))
        .layer(SettleLayer::new().on_error(ErrorPolicy::retry(3)))
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service(handler)
}

async fn book(Key(customer): Key, apples: String) -> Result<(), BoxError> {
    let apples: u32 = apples.parse().or_reject()?;
    println!("{customer:?} gets {apples} apples");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let broker = memory::Broker::new();
    broker.publish("orders", Message::builder("3").key("alice").build())?;
    broker.publish("orders", Message::builder("a dozen").key("bob").build())?;
    let orders = broker.queue("orders").consume();
    println!(
        "{}",
        serve(orders, stack(handler(book))).with_graceful_shutdown(broker.drained("orders")).await?
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use tower::ServiceExt;
    use tower_mq::testing::{Gate, Probe, Reply, Script, assert_settled, delivery, gate, source};

    use super::*;

    fn order(customer: &'static str, apples: &'static str) -> tower_mq::MessageBuilder {
        Message::builder(apples).key(customer)
    }

    /// Serves the stack over a scripted source, with a handler that waits at a gate.
    fn served() -> (Script, Gate<Message>) {
        let (handler, gate) = gate();
        let (orders, script) = source();
        tokio::spawn(async move { serve(orders, stack(handler)).await });
        (script, gate)
    }

    /// A handler by itself is a service like any other.
    #[tokio::test]
    async fn an_order_that_nobody_can_read_is_rejected() {
        let error =
            handler(book).oneshot(order("bob", "a dozen").build()).await.expect_err("it is no number");
        assert!(matches!(tower_mq::Failure::find(&*error), Some(Outcome::Reject { .. })));
    }

    /// A whole stack, one delivery: the probe tells what the broker would have been told.
    #[tokio::test]
    async fn what_the_handler_decides_reaches_the_broker() {
        for (apples, right) in [("3", "ack"), ("a dozen", "reject")] {
            let (delivery, probe) = delivery(order("alice", apples).build());
            let settled = stack(handler(book)).oneshot(delivery).await.expect("it is settled");
            assert_eq!(settled.outcome.name(), right);
            probe.assert_settled(&settled.outcome);
        }
    }

    /// A gate shows what runs, and lets it end in any order.
    #[tokio::test(start_paused = true)]
    async fn a_customer_is_served_in_order_and_holds_up_nobody_else() {
        let (script, gate) = served();
        let [first, second] = ["1", "2"].map(|apples| script.deliver(order("alice", apples)));
        let other = script.deliver(order("bob", "5"));

        let alice = gate.next_of("alice").await;
        gate.next_of("bob").await.answer(Outcome::Ack);
        assert_eq!(other.settled().await, Some(Outcome::Ack));
        assert_eq!(gate.waiting(), 0, "the second order of alice waits for the first");

        alice.answer(Outcome::Ack);
        let alice = gate.next_of("alice").await;
        assert_settled!(first, Outcome::Ack);
        second.assert_unsettled();
        alice.fail("the warehouse is closed");
        assert!(matches!(second.settled().await, Some(Outcome::Retry { .. })));
    }

    /// With a paused clock, five seconds take no time.
    #[tokio::test(start_paused = true)]
    async fn a_handler_that_hangs_is_given_up_after_five_seconds() {
        let (script, gate) = served();
        let (start, probe): (_, Probe) = (Instant::now(), script.deliver(order("alice", "3")));
        let hangs = gate.next().await;
        assert!(matches!(probe.settled().await, Some(Outcome::Retry { .. })));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        assert!(hangs.is_cancelled());
    }

    /// A lost connection: what ran is settled in vain, and the broker sends it again.
    #[tokio::test(start_paused = true)]
    async fn an_order_whose_connection_was_lost_is_handled_again() {
        let (script, gate) = served();
        let probe = script.deliver(order("alice", "3"));
        let running = gate.next().await;
        script.disconnect();
        running.answer(Outcome::Ack);
        let again = gate.next().await;
        assert!(again.request().redelivered() && probe.is_stale());
        again.answer(Outcome::Ack);
        let again = probe.again().expect("it came again");
        assert_eq!(again.settled().await, Some(Outcome::Ack));
    }

    /// A broker that is slow to confirm holds up nobody, and a duplicate is one more order.
    #[tokio::test(start_paused = true)]
    async fn orders_go_on_while_the_broker_is_slow() {
        let (script, gate) = served();
        script.reply_with(Reply::confirmed().after(Duration::from_secs(60)));
        let (start, orders) = (Instant::now(), script.deliver_twice(order("alice", "3")));
        for order in orders {
            gate.next().await.answer(Outcome::Ack);
            order.settled().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
