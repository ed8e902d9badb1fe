//! `/proc/PID/timers`: POSIX timers.

use super::text::{ParseError, decimal, hexadecimal, key_value, lines};

/// How a timer tells that it has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerNotify {
    /// SIGEV_SIGNAL to the process.
    Signal,
    /// SIGEV_THREAD_ID: a signal to this thread, as the mounted `/proc` counts.
    Thread(i32),
    /// SIGEV_NONE.
    None,
}

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerLine {
    /// Its id.
    pub id: i32,
    /// Its signal.
    pub signal: i32,
    /// `sigev_value`.
    pub value: u64,
    /// How it tells.
    pub notify: TimerNotify,
    /// Its clock.
    pub clock: i32,
}

/// Reads `timers`.
///
/// # Errors
/// The first line that makes no sense; SIGEV_THREAD at kernel level (which nothing uses) too.
pub fn parse_timers(bytes: &[u8]) -> Result<Vec<TimerLine>, ParseError> {
    let mut timers: Vec<TimerLine> = vec![];
    let mut fields = 0;
    for line in lines(bytes) {
        let wrong = |what| ParseError::new(what, line);
        let (key, value) = key_value(line).ok_or(wrong("a field of a timer"))?;
        if key == b"ID" {
            if fields % 4 != 0 {
                return Err(wrong("the rest of the timer before"));
            }
            timers.push(TimerLine {
                id: decimal("a timer's id", value)?,
                signal: 0,
                value: 0,
                notify: TimerNotify::None,
                clock: 0,
            });
        }
        let timer = timers.last_mut().ok_or(wrong("a timer's id"))?;
        fields += 1;
        match key {
            b"ID" => {}
            b"signal" => {
                let slash = value.iter().position(|byte| *byte == b'/');
                let slash = slash.ok_or(wrong("signal and value"))?;
                timer.signal = decimal("a signal", &value[..slash])?;
                timer.value = hexadecimal("a value", &value[slash + 1..])?;
            }
            b"notify" => timer.notify = parse_notify(value).ok_or(wrong("a known notification"))?,
            b"ClockID" => timer.clock = decimal("a clock", value)?,
            _ => return Err(wrong("a known field of a timer")),
        }
    }
    if fields % 4 == 0 {
        Ok(timers)
    } else {
        Err(ParseError::new("four fields of each timer", bytes))
    }
}

fn parse_notify(value: &[u8]) -> Option<TimerNotify> {
    let text = std::str::from_utf8(value).ok()?;
    let (how, whom) = text.split_once('/')?;
    match (how, whom.split_once('.')?) {
        ("signal", ("pid", _)) => Some(TimerNotify::Signal),
        ("signal", ("tid", tid)) => tid.parse().ok().map(TimerNotify::Thread),
        ("none", _) => Some(TimerNotify::None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_timers_read_right() {
        let text = b"ID: 0\nsignal: 14/0000000000000000\nnotify: signal/pid.11085\nClockID: 1\n\
            ID: 7\nsignal: 34/00007fff6f1f1cf0\nnotify: signal/tid.11086\nClockID: -6\n";
        let timers = parse_timers(text).expect("parses");
        assert_eq!(timers[0].notify, TimerNotify::Signal);
        let second = TimerLine {
            id: 7,
            signal: 34,
            value: 0x7fff_6f1f_1cf0,
            notify: TimerNotify::Thread(11086),
            clock: -6,
        };
        assert_eq!(timers[1], second);
        assert!(parse_timers(&text[..60]).is_err());
        assert_eq!(parse_timers(b""), Ok(vec![]));
    }
}
