//! Numbers as C reads, prints and converts them.

use crate::text::is_blank;

/// `printf("%.*E")` with `digits` behind the point.
pub(crate) fn scientific(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$E}");
    let (mantissa, exponent) = text.split_once('E').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(rest) => ('-', rest),
        None => ('+', exponent),
    };
    format!("{mantissa}E{sign}{exponent:0>2}")
}

/// `printf("%.*G")`: at most `digits` significant ones, the shorter of both forms.
pub(crate) fn general(number: f64, digits: usize) -> String {
    let long = scientific(number, digits - 1);
    let (mantissa, exponent) = long.split_once('E').unwrap_or((&long, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let precision = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= precision {
        let (_, exponent) = long.split_once('E').unwrap_or(("", "+00"));
        return format!("{}E{exponent}", trimmed(mantissa));
    }
    let behind = usize::try_from(precision - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{number:.behind$}"))
}

/// `(long long) number`, as x86-64 does it: what does not fit is the smallest integer.
pub(crate) fn truncate(number: f64) -> i64 {
    const EDGE: f64 = 9_223_372_036_854_775_808.0;
    // `as` saturates; NaN is none of the two.
    if (-EDGE..EDGE).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// `(int) number`, as x86-64 does it.
pub(crate) fn truncate_short(number: f64) -> i32 {
    if number > -2_147_483_649.0 && number < 2_147_483_648.0 {
        number as i32
    } else {
        i32::MIN
    }
}

/// `(int) number`: its low 32 bits.
pub(crate) fn low_half(number: i64) -> i32 {
    number as i32
}

/// `strtod`: the number that a text begins with, and how many bytes of it were read.
pub(crate) fn read_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    let (negative, signs) = match text.get(blanks) {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let begin = blanks + signs;
    let (number, len) = read_unsigned(text.get(begin..)?)?;
    Some((if negative { -number } else { number }, begin + len))
}

fn read_unsigned(text: &[u8]) -> Option<(f64, usize)> {
    let starts = |word: &str| {
        text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes())
    };
    if starts("infinity") {
        return Some((f64::INFINITY, 8));
    }
    if starts("inf") {
        return Some((f64::INFINITY, 3));
    }
    if starts("nan") {
        return Some((f64::NAN, 3));
    }
    if starts("0x")
        && let Some(found) = read_hexadecimal(&text[2..])
    {
        return Some((found.0, found.1 + 2));
    }
    let digits = |from: usize| {
        text[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let whole = digits(0);
    let mut len = whole;
    let mut behind = 0;
    if text.get(len) == Some(&b'.') {
        behind = digits(len + 1);
        if whole + behind > 0 {
            len += 1 + behind;
        }
    }
    if whole + behind == 0 {
        return None;
    }
    if matches!(text.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(len + 1), Some(b'-' | b'+')));
        let exponent = if len + 1 + sign <= text.len() {
            digits(len + 1 + sign)
        } else {
            0
        };
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let number = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some((number, len))
}

/// Digits behind `0x`, perhaps with a point and a binary exponent.
fn read_hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let mut number = 0.0_f64;
    let mut exponent = 0_i32;
    let mut len = 0;
    let mut digits = 0;
    let mut behind = false;
    while let Some(&byte) = text.get(len) {
        match (byte as char).to_digit(16) {
            Some(digit) => {
                number = number * 16.0 + f64::from(digit);
                digits += 1;
                if behind {
                    exponent = exponent.saturating_sub(4);
                }
            }
            None if byte == b'.' && !behind => behind = true,
            None => break,
        }
        len += 1;
    }
    if digits == 0 {
        return None;
    }
    if matches!(text.get(len), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(text.get(len + 1), Some(b'-' | b'+')));
        let from = len + 1 + sign;
        let count = text
            .get(from..)
            .unwrap_or_default()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if count > 0 {
            let written = std::str::from_utf8(&text[from..from + count]).ok()?;
            let power: i32 = written.parse().unwrap_or(99_999);
            let power = if text[len + 1] == b'-' { -power } else { power };
            exponent = exponent.saturating_add(power);
            len = from + count;
        }
    }
    Some((number * 2.0_f64.powi(exponent), len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_c_does() {
        assert_eq!(scientific(0.1, 15), "1.000000000000000E-01");
        assert_eq!(scientific(1.5e300, 15), "1.500000000000000E+300");
        assert_eq!(general(1e20, 16), "1E+20");
        assert_eq!(general(123_456_789.123, 16), "123456789.123");
        assert_eq!(general(1e-5, 16), "1E-05");
        assert_eq!(general(3.0, 16), "3");
        assert_eq!(general(100.0, 16), "100");
        assert_eq!(general(9.999_999_9, 6), "10");
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        assert_eq!(read_prefix(b" -1.5e3x"), Some((-1500.0, 7)));
        assert_eq!(read_prefix(b"1e+"), Some((1.0, 1)));
        assert_eq!(read_prefix(b".5"), Some((0.5, 2)));
        assert_eq!(read_prefix(b"0x1p3"), Some((8.0, 5)));
        assert_eq!(read_prefix(b"0xg"), Some((0.0, 1)));
        assert_eq!(read_prefix(b"."), None);
        assert_eq!(read_prefix(b"abc"), None);
        assert_eq!(read_prefix(b"1e"), Some((1.0, 1)));
    }

    #[test]
    fn what_does_not_fit_is_the_smallest() {
        assert_eq!(truncate(1e30), i64::MIN);
        assert_eq!(truncate(f64::NAN), i64::MIN);
        assert_eq!(truncate(-1.9), -1);
        assert_eq!(truncate_short(1e10), i32::MIN);
    }
}
