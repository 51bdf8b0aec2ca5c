//! Signs of life for work that may take a while: on a terminal, on standard error, and nowhere else.

use std::time::Duration;

use indicatif::ProgressBar;

/// Turns until it is finished or dropped.
pub(crate) fn spinner(text: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(text.to_owned());
    // What is over at once needs no sign.
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
