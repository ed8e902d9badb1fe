//! A progress bar: on a terminal, for work that lasts longer than a second.
//!
//! Nothing is drawn where stderr is no terminal, and nothing in the first
//! second. With `NO_COLOR` the bar is drawn without colours.

use ckpt_lib::progress::{Progress, Silent};
use indicatif::{
    BinaryBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};
use std::fmt::Write;
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
    step_since: Instant,
    total: Option<u64>,
    done: u64,
    shown: Option<ProgressBar>,
}

impl Bar {
    fn new(since: Instant) -> Self {
        Bar {
            since,
            step: String::new(),
            step_since: since,
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
        // Of the whole step: what a bar itself knows begins when it is shown, with all that was done before.
        let since = self.step_since;
        if let Ok(style) = ProgressStyle::with_template(template(self.total.is_some())) {
            let style = style
                .with_key("rate", move |state: &ProgressState, to: &mut dyn Write| {
                    let _ = match rate(state.pos(), since.elapsed()) {
                        Some(rate) => write!(to, "{}/s", BinaryBytes(rate)),
                        None => Ok(()),
                    };
                })
                .with_key("left", move |state: &ProgressState, to: &mut dyn Write| {
                    let rest = state.len().map(|len| len.saturating_sub(state.pos()));
                    let rate = rate(state.pos(), since.elapsed());
                    let _ = match rest.zip(rate) {
                        Some((rest, rate)) => {
                            write!(
                                to,
                                "{:#}",
                                HumanDuration(Duration::from_secs(rest.div_ceil(rate)))
                            )
                        }
                        None => Ok(()),
                    };
                });
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
        (true, true) => "{msg} [{bar:40}] {bytes}/{total_bytes} {rate} {left}",
        (true, false) => "{msg} [{bar:40.green}] {bytes}/{total_bytes} {rate} {left}",
        (false, _) => "{msg} {bytes} {rate}",
    }
}

/// Bytes in a second; none if nothing can be said yet.
fn rate(bytes: u64, elapsed: Duration) -> Option<u64> {
    let micros = elapsed.as_micros().max(1);
    let rate = u128::from(bytes) * 1_000_000 / micros;
    u64::try_from(rate).ok().filter(|rate| *rate > 0)
}

impl Progress for Bar {
    fn begin(&mut self, step: &str, total_bytes: Option<u64>) {
        self.hide();
        step.clone_into(&mut self.step);
        self.step_since = Instant::now();
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
    fn a_rate_is_that_of_the_whole_step() {
        let second = Duration::from_secs(1);
        assert_eq!(rate(3 << 20, 2 * second), Some(3 << 19));
        assert_eq!(rate(0, second), None);
        assert_eq!(rate(5, Duration::ZERO), Some(5_000_000));
    }

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
