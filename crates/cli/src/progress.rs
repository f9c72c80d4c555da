//! Bars for whoever waits at a terminal; nowhere else.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps, or none where nobody looks.
pub fn bar(quiet: bool, steps: u64, template: &str) -> Option<ProgressBar> {
    (!quiet && std::io::stderr().is_terminal()).then(|| {
        let style = ProgressStyle::with_template(template).expect("a valid template");
        let bar = ProgressBar::new(steps).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    })
}

/// The bar of a phase before the rounds, which goes when it is dropped.
pub struct Phase(Option<ProgressBar>);

impl Phase {
    /// Of so many steps; 0 where nobody knows how many.
    pub fn new(quiet: bool, name: &'static str, steps: u64) -> Self {
        let template = if steps == 0 { "{spinner} {prefix} {msg}" } else { "{prefix} {wide_bar:.cyan/dim} {msg}" };
        Self(bar(quiet, steps, template).inspect(|bar| bar.set_prefix(name)))
    }

    /// So many steps are done.
    pub fn show(&self, steps: u64, message: impl FnOnce() -> String) {
        if let Some(bar) = &self.0 {
            bar.set_position(steps);
            bar.set_message(message());
        }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
