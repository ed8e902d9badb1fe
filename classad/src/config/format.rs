//! The formats of `$INT(x,%d)`, `$REAL(x,%f)` and `$STRING(x,%s)`: those of C's `printf`, for one value.

use crate::number::{general, low_half, scientific};

/// What a format prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    Integer,
    Real,
    String,
}

/// A format for one value, with the texts around it.
#[derive(Clone, Debug)]
pub(super) struct Format {
    before: String,
    behind: String,
    left: bool,
    plus: bool,
    blank: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    is_long: bool,
    letter: char,
}

/// No width and no precision is larger.
const MOST: usize = 1_000;

/// `printf("%.16G")`.
pub(super) fn shortest(number: f64) -> String {
    general(number, 16)
}

impl Format {
    /// A format, if it is one for exactly one value.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (before, mut rest) = text.split_once('%')?;
        let mut format = Self {
            before: before.to_owned(),
            behind: String::new(),
            left: false,
            plus: false,
            blank: false,
            zero: false,
            alternate: false,
            width: 0,
            precision: None,
            is_long: false,
            letter: 's',
        };
        while let Some(flag) = rest.chars().next().filter(|flag| "-+ 0#".contains(*flag)) {
            match flag {
                '-' => format.left = true,
                '+' => format.plus = true,
                ' ' => format.blank = true,
                '0' => format.zero = true,
                _ => format.alternate = true,
            }
            rest = &rest[1..];
        }
        format.width = number(&mut rest)?;
        if let Some(behind) = rest.strip_prefix('.') {
            rest = behind;
            format.precision = Some(number(&mut rest)?);
        }
        while let Some(behind) = rest.strip_prefix(['l', 'h', 'q', 'j', 'z', 't']) {
            format.is_long |= !rest.starts_with('h');
            rest = behind;
        }
        format.letter = rest
            .chars()
            .next()
            .filter(|letter| "diuxXocfFeEgGs".contains(*letter))?;
        rest = &rest[1..];
        if rest.contains('%') {
            return None;
        }
        rest.clone_into(&mut format.behind);
        Some(format)
    }

    pub(super) fn conversion(&self) -> Conversion {
        match self.letter {
            's' => Conversion::String,
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' => Conversion::Real,
            _ => Conversion::Integer,
        }
    }

    /// With `l`, 64 bits; else the lower 32 of them.
    pub(super) fn integer(&self, number: i64) -> String {
        let short = low_half(number);
        let number = if self.is_long {
            number
        } else {
            i64::from(short)
        };
        // Unsigned forms have the same bits.
        let bits = match self.is_long {
            true => number.cast_unsigned(),
            false => u64::from(short.cast_unsigned()),
        };
        let digits = match self.letter {
            'x' => format!("{bits:x}"),
            'X' => format!("{bits:X}"),
            'o' => format!("{bits:o}"),
            'u' => bits.to_string(),
            'c' => {
                let byte = u8::try_from(bits & 0xff).unwrap_or(0);
                return self.padded("", &char::from(byte).to_string(), false);
            }
            _ => number.unsigned_abs().to_string(),
        };
        let is_signed = "di".contains(self.letter);
        let digits = match self.precision {
            Some(0) if number == 0 => String::new(),
            Some(precision) => format!("{digits:0>precision$}"),
            None => digits,
        };
        let sign = match self.letter {
            'x' if self.alternate && bits != 0 => "0x",
            'X' if self.alternate && bits != 0 => "0X",
            'o' if self.alternate && !digits.starts_with('0') => "0",
            _ if is_signed => self.sign(number < 0),
            _ => "",
        };
        self.padded(sign, &digits, self.precision.is_none())
    }

    pub(super) fn real(&self, number: f64) -> String {
        let sign = self.sign(number.is_sign_negative());
        let number = number.abs();
        let is_small = self.letter.is_ascii_lowercase();
        if !number.is_finite() {
            let word = if number.is_nan() { "NAN" } else { "INF" };
            let word = if is_small {
                word.to_lowercase()
            } else {
                word.to_owned()
            };
            return self.padded(sign, &word, false);
        }
        let precision = self.precision.unwrap_or(6);
        let text = match self.letter.to_ascii_lowercase() {
            'f' => format!("{number:.precision$}"),
            'e' => scientific(number, precision),
            _ => general(number, precision.max(1)),
        };
        let text = match self.letter {
            'e' | 'g' => text.to_lowercase(),
            _ => text,
        };
        self.padded(sign, &text, true)
    }

    pub(super) fn string(&self, text: &str) -> String {
        let text: String = match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        };
        self.padded("", &text, false)
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.plus, self.blank) {
            (true, _, _) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn padded(&self, sign: &str, text: &str, zeros: bool) -> String {
        let missing = self.width.saturating_sub(sign.len() + text.len());
        let text = if self.left {
            format!("{sign}{text}{}", " ".repeat(missing))
        } else if self.zero && zeros {
            format!("{sign}{}{text}", "0".repeat(missing))
        } else {
            format!("{}{sign}{text}", " ".repeat(missing))
        };
        format!("{}{text}{}", self.before, self.behind)
    }
}

/// The digits that a text begins with, taken off it.
fn number(text: &mut &str) -> Option<usize> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(len);
    *text = rest;
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|number| *number <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(format: &str, number: i64) -> Option<String> {
        let format = Format::parse(format).filter(|one| one.conversion() == Conversion::Integer);
        format.map(|format| format.integer(number))
    }

    fn real(format: &str, number: f64) -> Option<String> {
        let format = Format::parse(format).filter(|one| one.conversion() == Conversion::Real);
        format.map(|format| format.real(number))
    }

    #[test]
    fn integers_are_printed_as_c_does() {
        for (format, number, expected) in [
            ("%d", 5, "5"),
            ("%03d", 2, "002"),
            ("foo%dbar", 1, "foo1bar"),
            ("%5d|", 1, "    1|"),
            ("%-5d|", -1, "-1   |"),
            ("%+d", 5, "+5"),
            ("%X", 255, "FF"),
            ("%o", 8, "10"),
            ("%u", -1, "4294967295"),
            ("%lu", -1, "18446744073709551615"),
            ("%c", 65, "A"),
            ("%.4d", -7, "-0007"),
            ("%#x", 255, "0xff"),
            ("%lld", i64::MIN, "-9223372036854775808"),
        ] {
            assert_eq!(
                integer(format, number).as_deref(),
                Some(expected),
                "{format}"
            );
        }
        assert_eq!(integer("%d%d", 1), None);
        assert_eq!(integer("%s", 1), None);
        assert_eq!(integer("%99999d", 1), None);
    }

    #[test]
    fn reals_are_printed_as_c_does() {
        for (format, number, expected) in [
            ("%e", 1.5, "1.500000e+00"),
            ("%10.3f|", 1.5, "     1.500|"),
            ("%.0f", 3.0, "3"),
            ("%g", 2.0, "2"),
            ("%G", 1e30, "1E+30"),
            ("%08.2f", -1.5, "-0001.50"),
        ] {
            assert_eq!(real(format, number).as_deref(), Some(expected), "{format}");
        }
        assert_eq!(shortest(1.0 / 3.0), "0.3333333333333333");
        assert_eq!(shortest(1e30), "1E+30");
    }
}
