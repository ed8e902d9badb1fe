//! Times as `absTime("…")` and `relTime("…")` read them.

use super::Fields;
use crate::text::is_blank;
use crate::value::AbsTime;

/// A date, perhaps a time of day, perhaps a zone, with anything between their numbers:
/// `2003-01-25T09:00:00-06:00`. Without a zone it is Greenwich's.
pub(crate) fn read_abs(text: &[u8]) -> Option<AbsTime> {
    let mut text = text.to_vec();
    let offset_seconds = take_zone(&mut text);
    let mut numbers = Numbers { text: &text, at: 0 };
    let year = numbers.next(4)?;
    let month = numbers.next(2).unwrap_or(1);
    let [day, hour, minute, second] = [(); 4].map(|()| numbers.next(2).unwrap_or(0));
    if numbers.is_left() {
        return None;
    }
    let seconds = Fields {
        year,
        month,
        day,
        hour,
        minute,
        second,
    }
    .seconds();
    // C's functions say -1 for what is no time.
    if seconds == -1 || offset_seconds == -1 {
        return None;
    }
    Some(AbsTime {
        seconds: seconds - i64::from(offset_seconds),
        offset_seconds,
    })
}

/// Cuts a zone off the end.
fn take_zone(text: &mut Vec<u8>) -> i32 {
    let last = text.iter().rposition(|byte| !is_blank(*byte));
    if let Some(at) = last
        && at > 0
        && matches!(text[at], b'z' | b'Z')
    {
        text.remove(at);
        return 0;
    }
    let len = text.len();
    let is_sign = |at: usize| matches!(text[at], b'+' | b'-');
    if len > 5 && is_sign(len - 5) {
        // As it should be.
    } else if len > 6 && is_sign(len - 6) && text[len - 3] == b':' {
        text.remove(len - 3);
    } else {
        return 0;
    }
    let begin = text.len() - 5;
    let digits = &text[begin + 1..];
    if !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let digit = |at: usize| i32::from(digits[at] - b'0');
    let offset = (digit(0) * 10 + digit(1)) * 3600 + (digit(2) * 10 + digit(3)) * 60;
    let negative = text[begin] == b'-';
    text.truncate(begin);
    if negative { -offset } else { offset }
}

struct Numbers<'t> {
    text: &'t [u8],
    at: usize,
}

impl Numbers<'_> {
    fn skip(&mut self) {
        let rest = &self.text[self.at.min(self.text.len())..];
        self.at += rest
            .iter()
            .take_while(|byte| !byte.is_ascii_digit())
            .count();
    }

    /// The number in the next `width` bytes from a digit on.
    fn next(&mut self, width: usize) -> Option<i64> {
        self.skip();
        let field = self.text.get(self.at..self.at + width)?;
        self.at += width;
        let digits = field.iter().take_while(|byte| byte.is_ascii_digit());
        Some(digits.fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    }

    fn is_left(&mut self) -> bool {
        self.skip();
        self.at < self.text.len()
    }
}

/// `[-][days+][[hours:]minutes:]seconds`, or with `d`, `h`, `m`, `s` behind the numbers; any may be missing.
pub(crate) fn read_rel(text: &[u8]) -> Option<f64> {
    let mut rest = Backwards { text };
    let mut seconds = 0.0;
    if rest.ends_with(|byte| byte.is_ascii_digit() || matches!(byte, b's' | b'S')) {
        if rest.ends_with(|byte| matches!(byte, b's' | b'S')) {
            rest.cut();
        }
        seconds = rest.take_real();
    }
    let unit = |rest: &mut Backwards<'_>, letters: [u8; 3]| {
        if !rest.ends_with(|byte| letters.contains(&byte)) {
            return 0.0;
        }
        rest.cut();
        rest.take_whole()
    };
    let minutes = unit(&mut rest, [b'm', b'M', b':']);
    let hours = unit(&mut rest, [b'h', b'H', b':']);
    let days = unit(&mut rest, [b'd', b'D', b'+']);
    let negative = rest.ends_with(|byte| byte == b'-');
    if negative {
        rest.cut();
    }
    if rest.ends_with(|_| true) {
        return None;
    }
    let total = days * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds;
    Some(if negative { -total } else { total })
}

/// A text that is read from its end.
struct Backwards<'t> {
    text: &'t [u8],
}

impl Backwards<'_> {
    fn skip_blanks(&mut self) {
        self.text = self.text.trim_ascii_end();
    }

    fn ends_with(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        self.skip_blanks();
        self.text.last().is_some_and(|byte| wanted(*byte))
    }

    fn cut(&mut self) {
        self.text = &self.text[..self.text.len().saturating_sub(1)];
    }

    fn digits(&self) -> usize {
        self.text
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    }

    fn take_whole(&mut self) -> f64 {
        self.skip_blanks();
        let (rest, number) = self.text.split_at(self.text.len() - self.digits());
        self.text = rest;
        std::str::from_utf8(number)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0.0)
    }

    fn take_real(&mut self) -> f64 {
        self.skip_blanks();
        let whole = self.text;
        let behind = self.digits();
        self.text = &self.text[..self.text.len() - behind];
        if self.text.last() == Some(&b'.') {
            self.cut();
            let before = self.digits();
            self.text = &self.text[..self.text.len() - before];
        }
        let number = &whole[self.text.len()..];
        std::str::from_utf8(number)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_original_reads_them() {
        let abs =
            |text: &str| read_abs(text.as_bytes()).map(|time| (time.seconds, time.offset_seconds));
        assert_eq!(
            abs("2003-01-25T09:00:00-06:00"),
            Some((1_043_506_800, -21_600))
        );
        assert_eq!(
            abs("2003-01-25 09:00:00 +05:30"),
            Some((1_043_465_400, 19_800))
        );
        assert_eq!(abs("20030125"), Some((1_043_452_800, 0)));
        assert_eq!(abs("200301250900001"), None);
        assert_eq!(abs("2003-01-25T09:00:00+5:30"), None);
        assert_eq!(abs("x"), None);
        assert_eq!(abs("1969-12-31T23:59:59Z"), None);
        let rel = |text: &str| read_rel(text.as_bytes());
        assert_eq!(rel("1+2:3:4"), Some(93_784.0));
        assert_eq!(rel("1d2h3m4s"), Some(93_784.0));
        assert_eq!(rel("-1+00:00:05"), Some(-86_405.0));
        assert_eq!(rel("1.5"), Some(1.5));
        assert_eq!(rel(""), Some(0.0));
        assert_eq!(rel("+5"), Some(5.0));
        assert_eq!(rel("1.5.5"), None);
        assert_eq!(rel("1:-5"), None);
        assert_eq!(rel("x"), None);
    }
}
