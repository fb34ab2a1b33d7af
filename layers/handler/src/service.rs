//! A function as a service.

use std::{
    any::type_name,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use tower_mq_delivery::{BoxError, IntoAnswer, Work};
use tower_service::Service;

use crate::{Arguments, HandlerFn, future::ResponseFuture};

/// Makes a service of an async function whose arguments are taken out of the message. See the [crate's docs](crate).
///
/// ```
/// use std::sync::Arc;
///
/// use tower_mq_delivery::{BoxError, Message};
/// use tower_mq_handler::{Key, handler};
///
/// struct Database;
///
/// let database = Arc::new(Database);
/// let service = handler(move |key: Key, payload: String| {
///     let database = database.clone();
///     async move {
///         let _ = (database, key, payload);
///         Ok::<_, BoxError>(())
///     }
/// });
/// # let _ = tower::ServiceExt::<Message>::boxed(service);
/// ```
///
/// It is cloned for each message, so what it captures is `Clone`: wrap the rest in `Arc`. This does not compile:
///
/// ```compile_fail,E0277
/// # use tower_mq_handler::handler;
/// # struct Socket;
/// # let socket = Socket;
/// let service = handler(move |_: String| async move { drop(socket) });
/// ```
pub fn handler<F, Args>(function: F) -> Handler<F, Args>
where
    F: HandlerFn<Args>,
    // Asked for here and not in the trait, so that the compiler names the value that is not `Send`.
    F::Future: Send,
    Args: Arguments,
    F::Output: IntoAnswer<Args::Work>,
{
    Handler { function, arguments: PhantomData }
}

/// A handler as a service. Made by [`handler`].
///
/// # Panics
/// None: a panic of the function or of an extractor is the error [`Panicked`](tower_mq_delivery::Panicked), is
/// reported and logged.
///
/// # Cancel safety
/// Dropping the response future drops the function's future.
///
/// # Cost
/// No allocation beyond those of the extractors.
pub struct Handler<F, Args> {
    function: F,
    arguments: PhantomData<fn(Args)>,
}

impl<F, Args, W> Service<W> for Handler<F, Args>
where
    W: Work,
    F: HandlerFn<Args>,
    Args: Arguments<Work = W>,
    F::Output: IntoAnswer<W>,
{
    type Response = W::Answer;
    type Error = BoxError;
    type Future = ResponseFuture<F::Future, W>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, work: W) -> Self::Future {
        let called = catch_unwind(AssertUnwindSafe(|| {
            let extracted = Args::extract(&work)?;
            let future = extracted.arguments.map(|arguments| self.function.clone().run(arguments));
            Ok((future, extracted.holes))
        }));
        match called {
            Ok(Ok((future, holes))) => ResponseFuture::called(work, future, holes),
            Ok(Err(rejection)) => ResponseFuture::rejected(work, rejection),
            Err(panic) => ResponseFuture::panicked(work, &panic),
        }
    }
}

// By hand: the arguments need not be `Clone`.
impl<F: Clone, Args> Clone for Handler<F, Args> {
    fn clone(&self) -> Self {
        Self { function: self.function.clone(), arguments: PhantomData }
    }
}

impl<F, Args> fmt::Debug for Handler<F, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handler").field(&format_args!("{}", type_name::<F>())).finish()
    }
}
