//! The one way to a connection: the first and every later one.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_mq_delivery::{BoxError, SharedError};

use super::{Control, Demand, SourceError, SourceErrorKind};

/// How a source comes back to its broker: doubling delays with full jitter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Reconnect {
    from: Duration,
    to: Duration,
    first: Option<Duration>,
    later: Option<Duration>,
}

impl Reconnect {
    /// Delays from 100 ms to 10 s; the first connection is given up after 30 s, later ones never.
    pub const fn new() -> Self {
        Self {
            from: Duration::from_millis(100),
            to: Duration::from_secs(10),
            first: Some(Duration::from_secs(30)),
            later: None,
        }
    }

    /// The bounds of the delay between two attempts. The delay doubles from attempt to attempt; what is waited is
    /// drawn evenly between zero and the delay, so that many consumers do not come back at once.
    pub const fn backoff(mut self, from: Duration, to: Duration) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// For how long the first connection is tried; `None`: for ever. Default: 30 s.
    pub const fn first(mut self, limit: Option<Duration>) -> Self {
        self.first = limit;
        self
    }

    /// For how long a lost connection is tried; `None`: for ever, which is the default.
    pub const fn later(mut self, limit: Option<Duration>) -> Self {
        self.later = limit;
        self
    }

    fn delay(&self, attempt: u32) -> Duration {
        let most = self.from.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX)).min(self.to);
        most.mul_f64(fastrand::f64())
    }
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::new()
    }
}

/// Why an attempt to connect failed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// No later attempt can succeed: wrong password, no such queue.
    Permanent(SourceError),
    /// A later attempt may.
    Transient(BoxError),
}

/// How an attempt to get a connection ended.
#[derive(Debug)]
pub(crate) enum Established<C> {
    /// Connected.
    Yes(C),
    /// The source was closed meanwhile.
    Closed,
}

/// Tries to connect until it succeeds, is refused for good, runs out of time, or the source is closed.
///
/// `lost`: when and why the last connection ended; `None` for the first one. `broker` is how errors call the broker
/// and the queue.
pub(crate) async fn establish<C, F>(
    control: &Control,
    options: &Reconnect,
    broker: &str,
    lost: Option<(Instant, SharedError)>,
    mut connect: impl FnMut() -> F,
) -> Result<Established<C>, SourceError>
where
    F: Future<Output = Result<C, Refusal>>,
{
    let limit = if lost.is_some() { options.later } else { options.first };
    let since = lost.as_ref().map_or_else(Instant::now, |(since, _)| *since);
    if let Some((since, error)) = lost {
        control.reconnecting(since, 0, error);
    }
    for attempt in 1.. {
        let connected = tokio::select! {
            biased;
            () = closed(control) => return Ok(Established::Closed),
            connected = connect() => connected,
        };
        let error = match connected {
            Ok(connection) => return Ok(Established::Yes(connection)),
            Err(Refusal::Permanent(error)) => return Err(error),
            Err(Refusal::Transient(error)) => SharedError::from(error),
        };
        control.reconnecting(since, attempt, error.clone());
        let delay = options.delay(attempt);
        if limit.is_some_and(|limit| since.elapsed().saturating_add(delay) > limit) {
            let tried = since.elapsed().as_secs_f64();
            let what = format!("{broker} could not be reached in {attempt} attempts over {tried:.1} s");
            return Err(SourceError::new(SourceErrorKind::Unreachable, what).with_source(error));
        }
        tokio::select! {
            () = closed(control) => return Ok(Established::Closed),
            () = sleep(delay) => {}
        }
    }
    Ok(Established::Closed)
}

async fn closed(control: &Control) {
    let mut demand = control.demand();
    while !matches!(demand, Demand::Close(_)) {
        demand = control.demand_other_than(demand).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tower_mq_delivery::{Capabilities, Drain, Origin};

    use super::*;
    use crate::source::State;

    fn control() -> Control {
        Control::new(Arc::new(Origin::new("orders", "memory", 1, Capabilities::unknown())))
    }

    fn refused() -> Refusal {
        Refusal::Transient("connection refused".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_refusal_is_tried_again_and_health_tells() {
        let (control, mut attempts) = (control(), 0);
        let options = Reconnect::new();
        let established = establish(&control, &options, "the broker", None, || {
            attempts += 1;
            let result = if attempts < 4 { Err(refused()) } else { Ok(attempts) };
            async move { result }
        })
        .await;
        assert!(matches!(established, Ok(Established::Yes(4))));
        assert!(matches!(control.handle().health().state, State::Reconnecting { attempt: 3, .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_connection_is_given_up_in_time_and_the_error_names_the_broker() {
        let (control, start) = (control(), Instant::now());
        let options = Reconnect::new().first(Some(Duration::from_secs(5)));
        let result = establish::<(), _>(&control, &options, "queue `orders` at host:1", None, || async {
            Err(refused())
        })
        .await;
        let error = result.expect_err("it is never connected");
        assert_eq!(error.kind(), SourceErrorKind::Unreachable);
        assert!(
            error.to_string().contains("queue `orders` at host:1") && error.to_string().contains("refused")
        );
        assert!(start.elapsed() <= Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_the_wait_at_once() {
        let control = control();
        control.handle().close(Drain::Finish);
        let start = Instant::now();
        let result =
            establish::<(), _>(&control, &Reconnect::new(), "it", None, || async { Err(refused()) }).await;
        assert!(matches!(result, Ok(Established::Closed)));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_no_clock_can_show_is_none() {
        let (control, mut attempts) = (control(), 0);
        let options = Reconnect::new().first(Some(Duration::MAX));
        let established = establish(&control, &options, "the broker", None, || {
            attempts += 1;
            let result = if attempts < 3 { Err(refused()) } else { Ok(()) };
            async move { result }
        })
        .await;
        assert!(matches!(established, Ok(Established::Yes(()))));
    }

    #[test]
    fn the_delay_stays_below_its_limit() {
        let options = Reconnect::new().backoff(Duration::from_millis(1), Duration::from_secs(1));
        assert!((1..200).all(|attempt| options.delay(attempt) <= Duration::from_secs(1)));
    }
}
