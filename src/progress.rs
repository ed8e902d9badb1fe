//! A progress bar: on a terminal, for work that lasts longer than a second.
//!
//! Nothing is drawn where stderr is no terminal, and nothing in the first
//! second. With `NO_COLOR` the bar is drawn without colours.

use ckpt_lib::progress::{Progress, Silent};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

/// The progress display that suits stderr.
pub(crate) fn display() -> Box<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Box::new(Bar::new(Instant::now()))
    } else {
        Box::new(Silent)
    }
}

/// A bar that shows itself once its patience is over.
struct Bar {
    since: Instant,
    step: String,
    total: Option<u64>,
    done: u64,
    shown: Option<ProgressBar>,
}

impl Bar {
    fn new(since: Instant) -> Self {
        Bar {
            since,
            step: String::new(),
            total: None,
            done: 0,
            shown: None,
        }
    }

    fn hide(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self) {
        let bar = ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template(self.total.is_some())) {
            bar.set_style(style);
        }
        bar.set_message(self.step.clone());
        bar.set_position(self.done);
        self.shown = Some(bar);
    }
}

fn template(total_known: bool) -> &'static str {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match (total_known, plain) {
        (true, true) => "{msg} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        (true, false) => "{msg} [{bar:40.green}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        (false, _) => "{msg} {bytes} {bytes_per_sec}",
    }
}

impl Progress for Bar {
    fn begin(&mut self, step: &str, total_bytes: Option<u64>) {
        self.hide();
        step.clone_into(&mut self.step);
        self.total = total_bytes;
        self.done = 0;
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        match &self.shown {
            Some(bar) => bar.set_position(self.done),
            None if self.since.elapsed() >= PATIENCE => self.show(),
            None => {}
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.hide();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_in_the_first_second() {
        let mut bar = Bar::new(Instant::now());
        bar.begin("writing image", Some(100));
        bar.advance(50);
        assert!(bar.shown.is_none());
    }

    #[test]
    fn after_a_second_the_bar_stands_where_the_work_does() {
        let Some(past) = Instant::now().checked_sub(PATIENCE) else {
            return;
        };
        let mut bar = Bar::new(past);
        bar.begin("writing image", Some(100));
        bar.advance(50);
        bar.advance(10);
        let shown = bar.shown.as_ref().expect("shown");
        assert_eq!((shown.position(), shown.length()), (60, Some(100)));
        bar.begin("next", None);
        assert!(bar.shown.is_none());
    }
}
