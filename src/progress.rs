//! A progress bar: on a terminal, for work that lasts longer than a second.
//!
//! Nothing is drawn where stderr is no terminal, and nothing in the first
//! second. With `NO_COLOR` the bar is drawn without colours.

use ckpt_lib::progress::{Progress, Silent};
use indicatif::{
    BinaryBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
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

/// A bar that shows itself once its patience is over, also while a step says nothing of how far it is.
struct Bar {
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    since: Instant,
    step: String,
    step_since: Instant,
    total: Option<u64>,
    done: u64,
    shown: Option<ProgressBar>,
    is_over: bool,
}

impl Bar {
    fn new(since: Instant) -> Self {
        let state = State {
            since,
            step: String::new(),
            step_since: since,
            total: None,
            done: 0,
            shown: None,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            ended: Condvar::new(),
        });
        Bar {
            watcher: watch(&shared),
            shared,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the work is over, or the patience: then the step that goes on is shown.
    fn wait(&self) {
        let mut state = self.state();
        while !state.is_over {
            let left = PATIENCE.saturating_sub(state.since.elapsed());
            if left.is_zero() {
                return state.show_if_late();
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A thread that takes no signals. If none can be had, a bar waits for its step to say something.
fn watch(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let before = SigSet::all()
        .thread_swap_mask(SigmaskHow::SIG_SETMASK)
        .ok()?;
    let shared = Arc::clone(shared);
    let begun = std::thread::Builder::new().spawn(move || shared.wait());
    let _ = before.thread_set_mask();
    begun.ok()
}

impl State {
    fn hide(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }

    fn show_if_late(&mut self) {
        let is_late = self.since.elapsed() >= PATIENCE;
        if is_late && self.shown.is_none() && !self.step.is_empty() {
            self.show();
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
                // Some steps have no bytes.
                .with_key("done", |state: &ProgressState, to: &mut dyn Write| {
                    let _ = match state.pos() {
                        0 => Ok(()),
                        bytes => write!(to, "{}", BinaryBytes(bytes)),
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
        bar.tick();
        self.shown = Some(bar);
    }
}

fn template(total_known: bool) -> &'static str {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match (total_known, plain) {
        (true, true) => "{msg} [{bar:40}] {bytes}/{total_bytes} {rate} {left}",
        (true, false) => "{msg} [{bar:40.green}] {bytes}/{total_bytes} {rate} {left}",
        (false, _) => "{msg} {done} {rate}",
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
        let mut state = self.state();
        state.hide();
        step.clone_into(&mut state.step);
        state.step_since = Instant::now();
        state.total = total_bytes;
        state.done = 0;
        state.show_if_late();
    }

    fn advance(&mut self, bytes: u64) {
        let mut state = self.state();
        state.done += bytes;
        match &state.shown {
            Some(bar) => bar.set_position(state.done),
            None => state.show_if_late(),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let mut state = self.state();
        state.is_over = true;
        state.hide();
        drop(state);
        self.shared.ended.notify_all();
        if let Some(watcher) = self.watcher.take() {
            // It has no work of which anything could be lost.
            let _ = watcher.join();
        }
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
        assert!(bar.state().shown.is_none());
    }

    #[test]
    fn after_a_second_a_step_is_shown_that_says_nothing() {
        let Some(past) = Instant::now().checked_sub(PATIENCE * 9 / 10) else {
            return;
        };
        let mut bar = Bar::new(past);
        bar.begin("bringing it to the disk", None);
        let begun = Instant::now();
        while bar.state().shown.is_none() {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "nothing is shown"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(past.elapsed() >= PATIENCE);
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
        let shown = bar.state().shown.clone().expect("shown");
        assert_eq!((shown.position(), shown.length()), (60, Some(100)));
        bar.begin("next", None);
        assert!(shown.is_finished());
        let shown = bar.state().shown.clone().expect("shown");
        assert_eq!((shown.message(), shown.position()), ("next".to_owned(), 0));
    }
}
