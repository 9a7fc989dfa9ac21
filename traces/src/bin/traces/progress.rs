//! A progress bar on stderr, drawn only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar whose length is told later.
pub(crate) fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent}%, {eta} left");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
