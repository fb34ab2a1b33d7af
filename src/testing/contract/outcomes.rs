//! What becomes of a decision.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Rig,
    bench::{Bench, Result},
};
use crate::{Attempts, Delivery, Outcome};

const WINDOW: usize = 4;

/// What is acked is gone.
pub(super) async fn acked<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, WINDOW).await?;
    let mut taken = Vec::new();
    for number in 0..WINDOW {
        taken.push(bench.next_is(number).await?);
    }
    // Not in order.
    for index in [2, 0, 1, 0] {
        let delivery = taken.remove(index);
        bench.settle(delivery, Outcome::Ack).await?;
    }
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await?;
    bench.consume(WINDOW).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// What is released comes again, and nobody has failed.
pub(super) async fn released<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, 2).await?;
    let (delivery, other) = (bench.next_is(0).await?, bench.next_is(1).await?);
    bench.settle(other, Outcome::Ack).await?;
    let attempt = delivery.message().attempt();
    bench.settle(delivery, Outcome::Release).await?;
    let again = bench.next_is(0).await?;
    came_back(bench, &again, attempt)?;
    bench.settle(again, Outcome::Ack).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// What is dropped is released.
pub(super) async fn dropped<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, 2).await?;
    let (delivery, other) = (bench.next_is(0).await?, bench.next_is(1).await?);
    bench.settle(other, Outcome::Ack).await?;
    let attempt = delivery.message().attempt();
    bench.drop_delivery(delivery);
    let again = bench.next_is(0).await?;
    came_back(bench, &again, attempt)?;
    bench.settle(again, Outcome::Ack).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// It was released: marked, and not counted unless the source says so.
fn came_back<R: Rig>(bench: &Bench<'_, R>, again: &Delivery, attempt: Option<u32>) -> Result {
    if !again.message().redelivered() {
        return bench.fault("what comes again is not marked as redelivered");
    }
    let counts = bench.handle().origin().capabilities().release_counts;
    match (attempt, again.message().attempt()) {
        (Some(before), Some(now)) if now != before && !counts => {
            bench.fault("a release counts as an attempt, and its capabilities say that it does not")
        }
        (Some(before), Some(now)) if now < before => bench.fault("the count of attempts went back"),
        _ => Ok(()),
    }
}

/// What is to be retried comes again, not before its time, and counts as an attempt.
pub(super) async fn retried<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, 1).await?;
    let mut delivery = bench.next_is(0).await?;
    let delays = [Duration::ZERO, bench.rig.quiet(), 2 * bench.rig.quiet()];
    for after in delays {
        let attempt = delivery.message().attempt();
        let start = Instant::now();
        bench.settle(delivery, Outcome::Retry { after }).await?;
        delivery = bench.next_is(0).await?;
        // A clock of milliseconds is behind by up to one.
        if start.elapsed() + Duration::from_millis(2) < after {
            return bench.fault("a retry came before its delay was over");
        }
        let again = delivery.message();
        if !again.redelivered() {
            return bench.fault("what comes again is not marked as redelivered");
        }
        let (before, now) = (attempt.unwrap_or(1), again.attempt().unwrap_or(1));
        let right = match bench.handle().origin().capabilities().attempts {
            Attempts::Broker => now == before + 1,
            Attempts::Source => now > before,
            _ => true,
        };
        if !right {
            return bench.fault("a retry does not count as an attempt");
        }
    }
    bench.settle(delivery, Outcome::Ack).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// What is rejected goes where it should.
pub(super) async fn rejected<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, 2).await?;
    let (first, second) = (bench.next_is(0).await?, bench.next_is(1).await?);
    bench.settle(first, Outcome::reject("the check rejects it")).await?;
    bench.settle(second, Outcome::Ack).await?;
    if !bench.handle().origin().capabilities().reject_has_target {
        // It becomes a release: nothing is lost.
        let again = bench.next_is(0).await?;
        bench.settle(again, Outcome::Ack).await?;
        return bench.end(0).await;
    }
    bench.nothing("what was rejected comes again").await?;
    bench.end(0).await?;
    let dead = bench.rig.dead_letters().await;
    match bench.done(dead)? {
        Some(dead) if dead != 1 => {
            bench.fault(format!("one message was rejected, and {dead} are dead letters"))
        }
        _ => Ok(()),
    }
}
