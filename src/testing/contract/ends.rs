//! How a source ends.

use tokio::time::sleep;

use super::{
    Rig,
    bench::{Bench, Result},
};
use crate::{Drain, Outcome, source::State};

const WINDOW: usize = 4;

/// Closed to finish, it waits for what is out. What was not handed out stays in the queue, in order.
pub(super) async fn finishes<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    let messages = WINDOW + 2;
    bench.begin(WINDOW, messages).await?;
    let (first, second) = (bench.next_is(0).await?, bench.next_is(1).await?);
    let last = bench.close(Drain::Finish).await?;
    let mut next = 2;
    for delivery in last {
        if super::bench::number(&delivery) != Some(next) {
            return bench.fault("what it hands out to its end is not in order");
        }
        next += 1;
        bench.settle(delivery, Outcome::Ack).await?;
    }
    bench.is_not_closed().await?;
    bench.ack_all([second, first]).await?;
    bench.ended_well(messages - next).await?;

    bench.consume(WINDOW).await?;
    for number in next..messages {
        let delivery = bench.next_is(number).await?;
        bench.settle(delivery, Outcome::Ack).await?;
    }
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// Closed to release, it gives back what was taken and has not started.
pub(super) async fn releases<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    let messages = WINDOW + 2;
    bench.begin(WINDOW, messages).await?;
    let (first, second) = (bench.next_is(0).await?, bench.next_is(1).await?);
    let last = bench.close(Drain::Release).await?;
    bench.is_not_closed().await?;
    bench.settle(first, Outcome::Ack).await?;
    for delivery in last.into_iter().chain([second]) {
        bench.settle(delivery, Outcome::Release).await?;
    }
    bench.ended_well(messages - 1).await?;

    bench.consume(messages).await?;
    let rest = bench.next_are(1..messages).await?;
    bench.ack_all(rest).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// Closed with nothing to do, it ends.
pub(super) async fn idle<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    for drain in [Drain::Finish, Drain::Release] {
        bench.begin(WINDOW, 0).await?;
        bench.nothing("nothing was published").await?;
        // Also when it is paused.
        bench.handle().pause();
        let last = bench.close(drain).await?;
        if !last.is_empty() {
            return bench.fault("it hands out what was not published");
        }
        bench.ended_well(0).await?;
    }
    Ok(())
}

/// Dropped, it gives back what was taken.
pub(super) async fn dropped<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, WINDOW).await?;
    let (first, second) = (bench.next_is(0).await?, bench.next_is(1).await?);
    bench.settle(first, Outcome::Ack).await?;
    sleep(bench.rig.quiet()).await;
    bench.drop_source();
    drop(second);

    bench.consume(WINDOW).await?;
    let rest = bench.next_are(1..WINDOW).await?;
    bench.ack_all(rest).await?;
    bench.nothing("what was acked comes again").await?;
    bench.end(0).await
}

/// An end that nobody asked for is an error.
pub(super) async fn ruined<R: Rig>(bench: &mut Bench<'_, R>) -> Result {
    bench.begin(WINDOW, 1).await?;
    let delivery = bench.next_is(0).await?;
    let ruined = bench.rig.ruin().await;
    if !bench.done(ruined)? {
        return Ok(());
    }
    bench.stream_ends().await?;
    drop(delivery);
    if bench.closed().await?.is_ok() {
        return bench.fault("it could not go on, and ended without an error");
    }
    if !matches!(bench.handle().health().state, State::Closed { error: Some(_) }) {
        return bench.fault("it could not go on, and its health does not say so");
    }
    bench.drop_source();
    Ok(())
}
