//! What a run does at its end, whoever ends it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tower::{BoxError, service_fn};
use tower_mq::{
    Acker, Delivery, Drain, Ended, Event, Message, Origin, Outcome, ServeError, Settle, Settlement, Settling,
    Token, serve,
    source::{FromStream, Handle, Source, SourceError, SourceErrorKind, from_stream},
};
use tower_service::Service;

/// Deliveries by hand, and what became of each.
#[derive(Clone, Default)]
struct Desk {
    outcomes: Arc<Mutex<Vec<(Token, Outcome)>>>,
}

impl Settle for Desk {
    fn settle(&self, token: Token, outcome: Outcome) -> Settling {
        self.outcomes.lock().push((token, outcome));
        Settling::done(Ok(Settlement::Confirmed))
    }
}

impl Desk {
    fn delivery(&self, number: u64) -> Delivery {
        let message = Message::new(number.to_string());
        Delivery::new(message, Acker::new(Arc::new(self.clone()), number))
    }

    /// A source that hands out `0..n` and then waits.
    fn waiting(&self, n: u64) -> FromStream<impl Stream<Item = Delivery> + Send + use<>> {
        let desk = self.clone();
        let mut numbers = 0..n;
        from_stream(stream::poll_fn(move |_| match numbers.next() {
            Some(number) => Poll::Ready(Some(desk.delivery(number))),
            None => Poll::Pending,
        }))
    }

    fn outcomes(&self) -> Vec<(Token, Outcome)> {
        let mut outcomes = self.outcomes.lock().clone();
        outcomes.sort_by_key(|(token, _)| *token);
        outcomes
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

async fn ack(delivery: Delivery) -> Result<(), BoxError> {
    delivery.settle(Outcome::Ack).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_runs_and_takes_nothing_more() {
    let desk = Desk::default();
    let service = service_fn(|delivery: Delivery| async move {
        tokio::time::sleep(ms(10)).await;
        ack(delivery).await
    });
    let report = serve(desk.waiting(100), service)
        .with_graceful_shutdown(tokio::time::sleep(ms(25)))
        .await
        .expect("the end was asked for");
    assert_eq!(report.ended, Ended::Shutdown);
    assert_eq!((report.counts.taken, report.counts.acked, report.abandoned), (3, 3, 0));
    assert_eq!(desk.outcomes(), [(0, Outcome::Ack), (1, Outcome::Ack), (2, Outcome::Ack)]);
}

#[tokio::test(start_paused = true)]
async fn after_the_drain_time_out_what_still_runs_is_dropped_and_released_once() {
    let desk = Desk::default();
    let service = service_fn(|delivery: Delivery| async move {
        std::future::pending::<()>().await;
        ack(delivery).await
    });
    let start = Instant::now();
    let report = serve(desk.waiting(2), service)
        .with_graceful_shutdown(tokio::time::sleep(ms(10)))
        .drain_timeout(ms(500))
        .await
        .expect("the end was asked for");
    assert_eq!(start.elapsed(), ms(510));
    assert_eq!((report.abandoned, report.counts.dropped, report.counts.open()), (1, 1, 0));
    assert_eq!(desk.outcomes(), [(0, Outcome::Release)]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_time_out_that_no_clock_can_show_is_for_ever() {
    let desk = Desk::default();
    let slow = service_fn(async |delivery: Delivery| {
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        ack(delivery).await
    });
    let report = serve(desk.waiting(1), slow)
        .with_graceful_shutdown(tokio::time::sleep(ms(10)))
        .drain_timeout(Duration::MAX)
        .await
        .expect("a good end");
    assert_eq!((report.counts.acked, report.abandoned), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_run_releases_its_deliveries() {
    let desk = Desk::default();
    let service = service_fn(|delivery: Delivery| async move {
        std::future::pending::<()>().await;
        ack(delivery).await
    });
    let run = tokio::time::timeout(ms(10), serve(desk.waiting(2), service)).await;
    assert!(run.is_err());
    assert_eq!(desk.outcomes(), [(0, Outcome::Release)]);
}

/// Ready so many times, then broken for good.
struct Ready<S> {
    times: usize,
    inner: S,
}

impl<S: Service<Delivery, Error = BoxError>> Service<Delivery> for Ready<S> {
    type Response = S::Response;
    type Error = BoxError;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.times {
            0 => Poll::Ready(Err("the pool is gone".into())),
            _ => self.inner.poll_ready(cx),
        }
    }

    fn call(&mut self, delivery: Delivery) -> S::Future {
        self.times -= 1;
        self.inner.call(delivery)
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_ready_again_ends_the_run_and_the_delivery_in_hand_is_released() {
    let desk = Desk::default();
    let service = Ready { times: 2, inner: service_fn(ack) };
    let source = desk.waiting(10);
    let handle = source.handle();
    let error = serve(source, service).await.expect_err("the service fails");
    assert_eq!(handle.origin().drain(), Some(Drain::Release), "nothing more is to be started, or waited for");
    assert!(matches!(&error, ServeError::Service { error, .. } if error.to_string() == "the pool is gone"));
    assert_eq!(error.report().counts.acked, 2);
    assert_eq!(desk.outcomes(), [(0, Outcome::Ack), (1, Outcome::Ack), (2, Outcome::Release)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_response_releases_its_delivery_and_the_run_goes_on() {
    let desk = Desk::default();
    let service = service_fn(|delivery: Delivery| async move {
        assert_ne!(delivery.message().payload(), "1", "not this one");
        ack(delivery).await
    });
    let source = desk.waiting(3);
    let handle = source.handle();
    let run = tokio::spawn(async move { serve(source, service).await });
    tokio::time::sleep(ms(1)).await;
    handle.close(Drain::Finish);
    let report = run.await.expect("no panic").expect("the end was asked for");
    assert_eq!((report.panics, report.ended), (1, Ended::Source));
    assert_eq!(desk.outcomes(), [(0, Outcome::Ack), (1, Outcome::Release), (2, Outcome::Ack)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_call_ends_the_run_with_an_error() {
    let desk = Desk::default();
    let service = service_fn(|delivery: Delivery| {
        assert_ne!(delivery.message().payload(), "1", "broken");
        ack(delivery)
    });
    let error = serve(desk.waiting(3), service).await.expect_err("the service panics");
    assert!(matches!(&error, ServeError::Panicked { error, .. } if error.to_string().contains("broken")));
    assert_eq!(desk.outcomes(), [(0, Outcome::Ack), (1, Outcome::Release)]);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_response_is_counted_and_the_run_goes_on() {
    let desk = Desk::default();
    let service = service_fn(|_: Delivery| async { Err::<(), BoxError>("not settled".into()) });
    let source = desk.waiting(3);
    let handle = source.handle();
    let closes = async move {
        tokio::time::sleep(ms(1)).await;
        handle.close(Drain::Finish);
    };
    let (report, ()) = tokio::join!(serve(source, service), closes);
    let report = report.expect("the end was asked for");
    assert_eq!((report.errors, report.counts.dropped), (3, 3));
}

/// Ends by itself after what its stream gives.
struct Failing<St>(St, Handle);

impl<St: Stream<Item = Delivery> + Unpin> Stream for Failing<St> {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

impl<St: Stream<Item = Delivery> + Unpin> Source for Failing<St> {
    fn handle(&self) -> Handle {
        self.1.clone()
    }

    fn poll_closed(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        Poll::Ready(Err(SourceError::new(SourceErrorKind::Cancelled, "queue `orders` was deleted")))
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_source_that_nobody_asked_for_is_an_error_and_what_runs_is_finished_first() {
    let desk = Desk::default();
    let handle = desk.waiting(0).handle();
    let source = Failing(stream::iter([desk.delivery(0), desk.delivery(1)]), handle);
    let service = service_fn(|delivery: Delivery| async move {
        tokio::time::sleep(ms(10)).await;
        ack(delivery).await
    });
    let error = serve(source, service).await.expect_err("the source fails");
    assert_eq!(error.to_string(), "the source ended: queue `orders` was deleted");
    assert_eq!(error.report().counts.acked, 2);
}

#[tokio::test(start_paused = true)]
async fn a_paused_source_hands_out_nothing_until_it_is_resumed() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let desk = Desk::default();
    (0..4).for_each(|number| sender.send(desk.delivery(number)).expect("it is received"));
    let source = from_stream(stream::poll_fn(move |cx| receiver.poll_recv(cx)));
    let handle = source.handle();
    handle.pause();
    let run = tokio::spawn(async move { serve(source, service_fn(ack)).await });
    tokio::time::sleep(ms(10)).await;
    assert!(desk.outcomes().is_empty() && handle.is_paused());
    handle.resume();
    tokio::time::sleep(ms(10)).await;
    assert_eq!(desk.outcomes().len(), 4);
    handle.close(Drain::Finish);
    run.await.expect("no panic").expect("the end was asked for");
    assert!(handle.origin().drain() == Some(Drain::Finish));
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_each_delivery_that_is_taken() {
    let (desk, taken) = (Desk::default(), Arc::new(Mutex::new(0)));
    let count = taken.clone();
    let report = serve(desk.waiting(5), service_fn(ack))
        .observer(move |_: &Origin, event: &Event<'_>| {
            if let Event::Taken = event {
                *count.lock() += 1;
            }
        })
        .with_graceful_shutdown(tokio::time::sleep(ms(1)))
        .await
        .expect("the end was asked for");
    assert_eq!((*taken.lock(), report.counts.taken), (5, 5));
}

#[tokio::test]
async fn a_run_can_be_spawned_and_its_signal_may_be_ctrl_c() {
    let desk = Desk::default();
    let source = desk.waiting(1);
    let handle = source.handle();
    let run = tokio::spawn(serve(source, service_fn(ack)).with_graceful_shutdown(tokio::signal::ctrl_c()));
    handle.close(Drain::Finish);
    run.await.expect("no panic").expect("the end was asked for");
}
