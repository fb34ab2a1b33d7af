//! Polls a future only when it was woken, and not for ever.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use atomic_waker::AtomicWaker;

/// Longer than anything a layer waits for by itself. With a paused clock it costs nothing.
pub(super) const LIMIT: Duration = Duration::from_secs(3600);

/// Long enough for tasks that are under way to come to rest.
const MOMENT: Duration = Duration::from_millis(1);

/// Polls the future first and whenever it was woken, and at no other time.
pub(super) struct Strict<F> {
    future: Pin<Box<F>>,
    flag: Arc<Flag>,
    waker: Waker,
}

struct Flag {
    woken: AtomicBool,
    outer: AtomicWaker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.outer.wake();
    }
}

impl<F: Future> Strict<F> {
    pub(super) fn new(future: F) -> Self {
        let flag = Arc::new(Flag { woken: AtomicBool::new(true), outer: AtomicWaker::new() });
        Self { future: Box::pin(future), waker: flag.clone().into(), flag }
    }

    /// What it is made of.
    pub(super) fn get_ref(&self) -> &F {
        &self.future
    }

    /// What comes of it; `None`: nothing, for as long as one can wait.
    pub(super) async fn outcome(mut self) -> Option<F::Output> {
        self.end().await
    }

    /// The same, for those who still need it.
    pub(super) async fn end(&mut self) -> Option<F::Output> {
        within(LIMIT, self).await
    }

    /// What comes of it soon; `None`: nothing. It can be polled on.
    pub(super) async fn soon(&mut self) -> Option<F::Output> {
        within(MOMENT, self).await
    }

    /// Polls it once, woken or not, as happens to a part of a larger future.
    pub(super) fn poll_unasked(&mut self) -> Poll<F::Output> {
        self.flag.woken.store(false, Ordering::Release);
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

impl<F: Future> Future for Strict<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.flag.outer.register(cx.waker());
        if this.flag.woken.swap(false, Ordering::AcqRel) {
            return this.future.as_mut().poll(&mut Context::from_waker(&this.waker));
        }
        Poll::Pending
    }
}

/// Waits until tasks that are under way have come to rest.
pub(super) async fn moment() {
    tokio::time::sleep(MOMENT).await;
}

async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}
