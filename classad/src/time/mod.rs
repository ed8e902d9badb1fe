//! Moments and spans: calendar, reading, printing.

mod calendar;
mod format;
mod read;

pub(crate) use calendar::Fields;
pub(crate) use format::format;
pub(crate) use read::{read_abs, read_rel};

use crate::number::{general, truncate_short};
use crate::value::AbsTime;

/// `2003-01-25T09:00:00-06:00`
pub(crate) fn print_abs(time: AbsTime) -> String {
    let fields = Fields::of(time.seconds.saturating_add(i64::from(time.offset_seconds)));
    let sign = if time.offset_seconds > 0 { '+' } else { '-' };
    let offset = time.offset_seconds.unsigned_abs();
    format!(
        "{}-{:02}-{:02}T{:02}:{:02}:{:02}{sign}{:02}:{:02}",
        fields.year,
        fields.month,
        fields.day,
        fields.hour,
        fields.minute,
        fields.second,
        offset / 3600,
        offset / 60 % 60
    )
}

/// A span in whole days, hours and minutes, what is left of them in seconds.
pub(crate) struct Span {
    pub(crate) days: i32,
    pub(crate) hours: i32,
    pub(crate) minutes: i32,
    /// Whole seconds.
    pub(crate) seconds: i32,
    /// What is left of a second.
    pub(crate) fraction: f64,
}

impl Span {
    /// What does not fit into 32 bits comes out as the original's conversion makes it.
    pub(crate) fn of(seconds: f64) -> Self {
        let whole = truncate_short(seconds);
        let day = whole % 86_400;
        let hour = day % 3600;
        Self {
            days: whole / 86_400,
            hours: day / 3600,
            minutes: hour / 60,
            seconds: hour % 60,
            fraction: seconds - seconds.floor(),
        }
    }
}

/// `1+02:03:04.5`, from the largest unit that is not zero on.
pub(crate) fn print_rel(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "" };
    let span = Span::of(seconds.abs());
    let last = match span.fraction == 0.0 {
        true => two(span.seconds),
        false => format!(
            "{:0>2}",
            general(f64::from(span.seconds) + span.fraction, 6).replace('E', "e")
        ),
    };
    let (hours, minutes) = (two(span.hours), two(span.minutes));
    if span.days != 0 {
        format!("{sign}{}+{hours}:{minutes}:{last}", span.days)
    } else if span.hours != 0 {
        format!("{sign}{hours}:{minutes}:{last}")
    } else if span.minutes != 0 {
        format!("{sign}{minutes}:{last}")
    } else {
        format!("{sign}{last}")
    }
}

/// `%02d`
fn two(number: i32) -> String {
    format!("{number:02}")
}
