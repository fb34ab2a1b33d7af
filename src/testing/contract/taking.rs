//! How a source takes.

use bytes::Bytes;

use super::{
    Rig,
    bench::{Bench, Result, message},
};
use crate::{Message, Outcome};

const WINDOW: usize = 4;

/// Each message comes once, in order, as it was published.
pub(super) async fn in_order<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    let messages = 10 * WINDOW;
    bench.begin(WINDOW, messages).await?;
    for number in 0..messages {
        let delivery = bench.next_is(number).await?;
        let taken = delivery.message();
        if taken.key() != message(number).key() {
            return bench.fault("a message does not have the key that it was published with");
        }
        if !matches!(taken.attempt(), None | Some(1)) {
            return bench.fault("the first attempt of a message is not the first");
        }
        if taken.redelivered() {
            return bench.fault("a message is marked as redelivered when it comes first");
        }
        if taken.is_stale() {
            return bench.fault("a message is stale when it comes, and nothing has happened");
        }
        bench.settle(delivery, Outcome::Ack).await?;
    }
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// Payloads and keys are what they were, however odd.
pub(super) async fn odd<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    let payloads = [
        ("an empty payload", Bytes::new()),
        ("a mebibyte", Bytes::from_iter((0..1 << 20).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]))),
        ("a binary payload", Bytes::from_iter(0..=u8::MAX)),
    ];
    let keys = [("no key", None), ("an empty key", Some("")), ("a key", Some("key"))];
    bench.begin(WINDOW, 0).await?;
    for (payload_name, payload) in &payloads {
        for (key_name, key) in keys {
            if key == Some("") && !bench.rig.has_empty_keys() {
                continue;
            }
            bench.publish_this(Message::builder(payload.clone()).maybe_key(key).build()).await?;
            let delivery = bench.next().await?;
            let taken = delivery.message();
            if taken.payload() != payload {
                return bench.fault(format!("{payload_name} does not come as it was published"));
            }
            if taken.key().map(|key| &key[..]) != key.map(str::as_bytes) {
                return bench.fault(format!("{key_name} does not come as it was published"));
            }
            bench.settle(delivery, Outcome::Ack).await?;
        }
    }
    bench.end(0).await
}

/// Taken and not settled is never more than the window, and no less if there is something to take.
pub(super) async fn window<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    let messages = 3 * WINDOW;
    bench.begin(WINDOW, messages).await?;
    let mut taken = Vec::new();
    for number in 0..WINDOW {
        match bench.next_is(number).await {
            Ok(delivery) => taken.push(delivery),
            Err(fault) if taken.is_empty() => return Err(fault),
            Err(_) => return bench.fault("it does not use its window: something is left to take"),
        }
    }
    bench.nothing("more than the window is taken and not settled").await?;
    // The first one is stuck. It costs its own place, and nothing else.
    let stuck = taken.remove(0);
    let mut next = WINDOW;
    while next < messages {
        for delivery in taken.drain(..).rev() {
            bench.settle(delivery, Outcome::Ack).await?;
        }
        while taken.len() < WINDOW - 1 && next < messages {
            match bench.next_is(next).await {
                Ok(delivery) => taken.push(delivery),
                Err(_) => {
                    return bench.fault("one stuck delivery keeps it from the places of those behind it");
                }
            }
            next += 1;
        }
        if next < messages {
            bench.nothing("more than the window is taken and not settled").await?;
        }
    }
    bench.ack_all(taken).await?;
    if stuck.message().is_stale() {
        return bench.fault("a delivery is stale, and nothing has happened");
    }
    bench.settle(stuck, Outcome::Ack).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// It takes nothing while it is paused, and settles all the same.
pub(super) async fn paused<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, 1).await?;
    let first = bench.next_is(0).await?;
    bench.handle().pause();
    bench.publish(2).await?;
    bench.nothing("it takes while it is paused").await?;
    bench.settle(first, Outcome::Ack).await?;
    bench.handle().resume();
    for number in [1, 2] {
        let delivery = bench.next_is(number).await?;
        bench.settle(delivery, Outcome::Ack).await?;
    }
    bench.end(0).await
}
