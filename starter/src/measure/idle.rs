//! For how long nobody has touched a keyboard or a mouse.
//!
//! ```text
//!  terminals of users (utmp), or all ──┐
//!  consoles ─┐                         ├─ the latest ──> KeyboardIdle
//!  stamps ───┼─ the latest ────────────┘
//!  input ────┤       `──> ConsoleIdle
//!  interrupts┘
//! ```
//! KeyboardIdle is never more than ConsoleIdle (manual 6.8 §3.5.1).

use super::read::{presses, users_terminals};
use super::source::{Document, Source};
use std::path::{Path, PathBuf};

/// Of what was never touched: HTCondor's number for it.
pub const NEVER: i64 = i32::MAX as i64;

/// Seconds without a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Of any keyboard, also of those at the other end of a network.
    pub keyboard_s: i64,
    /// Of what stands beside the machine.
    pub console_s: i64,
}

impl Idle {
    /// Of a machine that nobody uses.
    pub const FOR_EVER: Idle = Idle {
        keyboard_s: NEVER,
        console_s: NEVER,
    };
}

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// CONSOLE_DEVICES, names beneath /dev.
    pub consoles: Vec<PathBuf>,
    /// Files that something in a user's session touches when the user does something.
    pub stamps: Vec<PathBuf>,
    /// STARTD_HAS_BAD_UTMP: all terminals count, not only those of users who are logged in.
    pub distrusts_logins: bool,
    /// Only these terminals count.
    pub terminals: Option<Vec<PathBuf>>,
}

impl Default for Watched {
    fn default() -> Self {
        Watched {
            consoles: vec!["mouse".into(), "console".into()],
            stamps: vec![],
            distrusts_logins: false,
            terminals: None,
        }
    }
}

/// What is remembered between looks.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Counters say something only to who looks again.
    counts: bool,
    presses: Option<u64>,
    /// When a counter or a device was last seen to change.
    pressed_at: Option<i64>,
    /// When the terminal of a user who may have left since was last used.
    typed_at: Option<i64>,
}

impl Watch {
    /// Of who looks again and again. A keyboard that only counts is taken to be used at the first look, as by the original: the counter does
    /// not say when.
    #[must_use]
    pub fn over_time() -> Self {
        Watch {
            counts: true,
            ..Watch::default()
        }
    }

    /// Of who looks once: counters do not count.
    #[must_use]
    pub fn once() -> Self {
        Watch::default()
    }

    /// Looks at a machine.
    pub fn look(&mut self, source: &dyn Source, watched: &Watched) -> Idle {
        let now = source.now();
        if self.counts {
            self.count(source, now);
        }
        let used = |device: &Path| source.used_at(device);
        let console = watched
            .consoles
            .iter()
            .filter_map(|name| used(&Path::new("/dev").join(name)))
            .chain(watched.stamps.iter().filter_map(|f| source.touched_at(f)))
            .chain(self.pressed_at)
            .max();
        let terminals = terminals(source, watched);
        let typed = terminals.iter().filter_map(|path| used(path)).max();
        // Users who have left had been there: their last key counts on.
        self.typed_at = typed.or(self.typed_at);
        let since = |moment: Option<i64>| {
            // A moment that is still to come is now: somebody has set the clock.
            let seconds = moment.map_or(NEVER, |moment| now.saturating_sub(moment));
            seconds.clamp(0, NEVER)
        };
        Idle {
            keyboard_s: since(self.typed_at.max(console)),
            console_s: since(console),
        }
    }

    fn count(&mut self, source: &dyn Source, now: i64) {
        let interrupts = source.read(Document::Interrupts).unwrap_or_default();
        let presses = presses(&interrupts);
        if presses.is_some() && presses != self.presses {
            self.pressed_at = Some(now);
        }
        self.presses = presses.or(self.presses);
        if source.had_input() == Some(true) {
            self.pressed_at = Some(now);
        }
    }
}

/// Those that count. Without a file of who is logged in all do: the original takes nobody to be there then.
fn terminals(source: &dyn Source, watched: &Watched) -> Vec<PathBuf> {
    if let Some(terminals) = &watched.terminals {
        return terminals.clone();
    }
    match source.read(Document::Logins) {
        Ok(logins) if !watched.distrusts_logins => users_terminals(&logins),
        _ => source.terminals(),
    }
}
