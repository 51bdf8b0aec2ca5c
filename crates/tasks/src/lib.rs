//! Tasks that live as long as their process. One that panics is reported by its name, and its caller starts it again.
//!
//! tokio keeps a panic inside of its task: without this, a watch or a listener would be gone without a message.

use std::any::Any;
use std::fmt::Display;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Before it is started again: what panics at once must not fill the log.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });

/// Runs `task` to its end. True where that was a panic, which was reported: `while panicked("name", task()).await {}`.
/// Whatever the task shares with others must be whole at every point where it can panic.
pub async fn panicked(name: impl Display, task: impl Future<Output = ()>) -> bool {
    let mut task = pin!(task);
    let ended = poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(None),
        Err(panic) => Poll::Ready(Some(reason(panic.as_ref()).to_owned())),
    });
    let Some(why) = ended.await else { return false };
    tracing::error!(
        event = "panic",
        "{name} panicked, and is started again: {why}; please report this as a bug"
    );
    tokio::time::sleep(PAUSE).await;
    true
}

/// Runs a task that has no end, again and again. Only a bug comes to its end.
pub async fn without_end<F: Future<Output = ()>>(name: impl Display, mut task: impl FnMut() -> F) {
    loop {
        if !panicked(&name, task()).await {
            tracing::error!(
                event = "ended",
                "{name} ended, and is started again; please report this as a bug"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason was given")
}

#[cfg(test)]
#[allow(clippy::panic, reason = "that is what is tested")]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_started_again() {
        let runs = Cell::new(0);
        let task = async || {
            tokio::task::yield_now().await;
            runs.set(runs.get() + 1);
            assert!(runs.get() > 2, "a bug");
        };
        while panicked("a test", task()).await {}
        assert_eq!(runs.get(), 3);
    }

    #[tokio::test]
    async fn a_task_without_end_that_ends_is_started_again() {
        let runs = Cell::new(0);
        let task = || async {
            runs.set(runs.get() + 1);
            match runs.get() {
                1 => {}
                2 => panic!("a bug"),
                _ => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), without_end("a test", task)).await;
        assert_eq!(runs.get(), 3);
    }
}
