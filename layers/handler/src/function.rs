//! Functions that can be handlers.

/// A function that can be a handler: an `async fn`, or a closure that returns a future, of up to eight arguments.
///
/// It is cloned for each call, so what it captures should be cheap to clone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler",
    note = "a handler is an `async fn` of up to eight arguments, or a closure that returns a future",
    note = "it must be `Clone + Send + 'static`: wrap what it captures in `Arc`"
)]
pub trait HandlerFn<Args>: Clone + Send + 'static {
    /// What it returns.
    type Output;
    /// The call.
    type Future: Future<Output = Self::Output>;

    /// Calls it.
    fn run(self, arguments: Args) -> Self::Future;
}

macro_rules! function {
    ($($argument:ident)*) => {
        impl<Function, Returned, $($argument),*> HandlerFn<($($argument,)*)> for Function
        where
            Function: FnOnce($($argument),*) -> Returned + Clone + Send + 'static,
            Returned: Future,
        {
            type Output = Returned::Output;
            type Future = Returned;

            #[allow(non_snake_case)] // arguments are called like their types
            fn run(self, ($($argument,)*): ($($argument,)*)) -> Returned {
                self($($argument),*)
            }
        }
    };
}

function! {}
function! { A }
function! { A B }
function! { A B C }
function! { A B C D }
function! { A B C D E }
function! { A B C D E F }
function! { A B C D E F G }
function! { A B C D E F G H }
