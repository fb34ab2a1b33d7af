//! What it costs when nobody listens. Alone in its process, in which nobody does.

use std::{
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use allocation_counter::measure;
use tower::{Layer, Service, service_fn};
use tower_mq_delivery::{BoxError, Message, Outcome};
use tower_mq_trace::TraceLayer;

fn answer(_: Message) -> Ready<Result<Outcome, BoxError>> {
    ready(Ok(Outcome::Ack))
}

#[test]
fn nothing_is_allocated_when_nobody_listens() {
    let mut service = TraceLayer::new().layer(service_fn(answer));
    let message = Message::builder("")
        .destination("orders")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .build();
    let counted = measure(|| {
        for _ in 0..100 {
            let mut response = pin!(service.call(message.clone()));
            let response = response.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(response, Poll::Ready(Ok(Outcome::Ack))));
        }
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn the_future_is_one_pointer_larger() {
    type Inner = Ready<Result<Outcome, BoxError>>;
    let larger = size_of::<tower_mq_trace::future::ResponseFuture<Inner>>() - size_of::<Option<Inner>>();
    assert_eq!(larger, size_of::<usize>());
}
