//! How a source loses its connection.

use tokio::time::sleep;

use super::{
    Rig,
    bench::{Bench, Result},
};
use crate::{Outcome, source::State};

const WINDOW: usize = 4;

/// All that was not settled comes again, in a new generation; what was settled does not.
pub(super) async fn comes_back<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    let messages = WINDOW + 2;
    bench.begin(WINDOW, messages).await?;
    let mut taken = Vec::new();
    for number in 0..WINDOW {
        taken.push(bench.next_is(number).await?);
    }
    let [first, second, third, fourth] = taken.try_into().expect("a window");
    bench.settle(second, Outcome::Ack).await?;
    bench.settle(first, Outcome::Ack).await?;
    if !cut(bench).await? {
        return Ok(());
    }
    let generation = third.message().generation().clone();
    bench.over(&generation).await?;
    bench.settle_late(third, Outcome::Ack).await?;
    bench.drop_delivery(fourth);

    let again = bench.next_are(2..messages).await?;
    for delivery in &again {
        let message = delivery.message();
        if message.generation().number() <= generation.number() || message.is_stale() {
            return bench.fault("what comes again is not of a new generation");
        }
        let was_out = matches!(super::bench::number(delivery), Some(2 | 3));
        if was_out && !message.redelivered() {
            return bench.fault("what comes again is not marked as redelivered");
        }
    }
    tells(bench, 1, again[0].message().generation().number())?;
    bench.ack_all(again).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// It loses its connection several times, also with a full window, and with an empty one.
pub(super) async fn again_and_again<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, WINDOW).await?;
    for cuts in 1..=2 {
        let taken = bench.next_are(0..WINDOW).await?;
        if !cut(bench).await? {
            return Ok(());
        }
        bench.over(&taken[0].message().generation().clone()).await?;
        for delivery in taken {
            bench.settle_late(delivery, Outcome::Release).await?;
        }
        let again = bench.next_are(0..WINDOW).await?;
        bench.nothing("more than the window is taken and not settled").await?;
        tells(bench, cuts, again[0].message().generation().number())?;
        for delivery in again {
            bench.settle(delivery, Outcome::Release).await?;
        }
    }
    let taken = bench.next_are(0..WINDOW).await?;
    let generation = taken[0].message().generation().clone();
    bench.ack_all(taken).await?;
    cut(bench).await?;
    bench.over(&generation).await?;
    bench.publish(1).await?;
    let delivery = bench.next_is(WINDOW).await?;
    bench.settle(delivery, Outcome::Ack).await?;
    bench.end(0).await
}

/// Cuts the connection, when the broker has heard of all that was decided. `false`: it cannot be done.
async fn cut<R: Rig>(bench: &mut Bench<'_, R>) -> Result<bool> {
    sleep(bench.rig.quiet()).await;
    let cut = bench.rig.cut().await;
    bench.done(cut)
}

/// It has told of each loss, and of the generation that lives now.
fn tells<R: Rig>(bench: &mut Bench<'_, R>, cuts: usize, generation: u64) -> Result {
    let seen = bench.seen();
    if seen.reconnecting < cuts {
        return bench.fault("it lost its connection, and nobody was told that it is reconnecting");
    }
    if seen.connected.last() != Some(&generation) {
        return bench.fault("it has a new connection, and did not tell of its generation");
    }
    match bench.handle().health().state {
        State::Connected { generation: told, .. } if told == generation => Ok(()),
        _ => bench.fault("it has a new connection, and its health does not say so"),
    }
}
