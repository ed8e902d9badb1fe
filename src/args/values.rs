//! What stands behind options: names, sizes, times, signals.

const NAME_MAX: usize = 64;

/// Whether this can be the name of a job: one path component that no pid can be mistaken for.
pub(crate) fn is_job_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let first = name.chars().next().unwrap_or('.');
    name.len() <= NAME_MAX
        && name.chars().all(plain)
        && !".-".contains(first)
        && !name.chars().all(|c| c.is_ascii_digit())
}

/// A microarchitecture level of the x86-64 psABI.
pub(super) fn parse_level(text: &str) -> Result<ckpt_lib::platform::Level, String> {
    ckpt_lib::platform::Level::from_name(text)
        .ok_or_else(|| "expected x86-64-v2, x86-64-v3 or x86-64-v4".to_owned())
}

pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode @ 0..=0o777) => Ok(mode),
        _ => Err("expected octal digits up to 777".to_owned()),
    }
}

pub(super) fn parse_name(text: &str) -> Result<String, String> {
    if is_job_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "a job's name has up to {NAME_MAX} letters, digits and `._+-`, begins with a letter, \
             digit or `_`, and is not only digits"
        ))
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

/// Bytes in a second.
pub(super) fn parse_rate(text: &str) -> Result<std::num::NonZeroU64, String> {
    std::num::NonZeroU64::new(parse_size(text)?)
        .ok_or_else(|| "expected more than nothing".to_owned())
}

pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err("expected bytes or a number with K, M, G or T".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a number such as 256M".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "more than 64 bits of bytes".to_owned())
}

pub(super) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let (digits, unit) = split_unit(text);
    let unit_ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("expected a number with ms, s, m, h or d".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a number such as 5s".to_owned())?;
    let ms = number
        .checked_mul(unit_ms)
        .ok_or_else(|| "longer than time itself".to_owned())?;
    Ok(std::time::Duration::from_millis(ms))
}

pub(super) fn parse_compression(text: &str) -> Result<i32, String> {
    let level = match text.strip_prefix("zstd") {
        Some("") => "3",
        Some(rest) => rest.strip_prefix(':').unwrap_or(""),
        None => "",
    };
    match level.parse() {
        Ok(level @ 1..=19) => Ok(level),
        _ => Err("expected zstd or zstd:LEVEL with a level from 1 to 19".to_owned()),
    }
}

const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

pub(super) fn parse_signal(text: &str) -> Result<i32, String> {
    if let Ok(number) = text.parse::<i32>() {
        return if (0..=64).contains(&number) {
            Ok(number)
        } else {
            Err(
                "signals are numbered 1 to 64 (0 sends none, and tells whether one could be sent)"
                    .to_owned(),
            )
        };
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if let Some(number) = real_time(name) {
        return Ok(number);
    }
    match SIGNALS.iter().position(|known| *known == name) {
        Some(index) => Ok(index as i32 + 1),
        None => Err("no such signal; `kill -l` lists them".to_owned()),
    }
}

/// The first and the last signal that C libraries leave to programs.
const REAL_TIME: (i32, i32) = (34, 64);

/// `RTMIN`, `RTMIN+3`, `RTMAX-2`.
fn real_time(name: &str) -> Option<i32> {
    let (from, rest, sign) = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => (REAL_TIME.0, rest, '+'),
        (_, Some(rest)) => (REAL_TIME.1, rest, '-'),
        _ => return None,
    };
    if rest.is_empty() {
        return Some(from);
    }
    let digits = rest.strip_prefix(sign)?;
    let steps = digits.parse::<u8>().ok().filter(|_| digits.len() <= 2)?;
    let number = if sign == '+' {
        from + i32::from(steps)
    } else {
        from - i32::from(steps)
    };
    (REAL_TIME.0..=REAL_TIME.1)
        .contains(&number)
        .then_some(number)
}

/// The name of a signal, or its number.
pub(crate) fn signal_name(signal: i32) -> String {
    let index = usize::try_from(signal - 1).ok();
    match index.and_then(|index| SIGNALS.get(index)) {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(parse_size("256M"), Ok(256 << 20));
        assert_eq!(parse_size("0"), Ok(0));
        assert!(parse_size("M").is_err() && parse_size("99999999T").is_err());
        assert_eq!(
            parse_duration("2m"),
            Ok(std::time::Duration::from_secs(120))
        );
        assert!(parse_duration("-1s").is_err());
        assert_eq!(parse_compression("zstd:19"), Ok(19));
        assert!(parse_compression("zstd:20").is_err() && parse_compression("gzip").is_err());
        assert_eq!(parse_signal("SIGUSR1"), Ok(10));
        assert_eq!(parse_signal("term"), Ok(15));
        assert!(parse_signal("65").is_err() && parse_signal("NOPE").is_err());
        let real_time = ["RTMIN", "SIGRTMIN+3", "rtmax-1", "RTMAX"].map(parse_signal);
        assert_eq!(real_time, [Ok(34), Ok(37), Ok(63), Ok(64)]);
        assert!(parse_signal("RTMIN+31").is_err() && parse_signal("RTMIN-1").is_err());
    }

    #[test]
    fn names_are_no_paths_and_no_pids() {
        for good in ["night", "a-1", "x.y", "9lives", "_"] {
            assert!(is_job_name(good), "{good}");
        }
        for bad in ["", "12", "a/b", "..", "-x", "ü", &"x".repeat(65)] {
            assert!(!is_job_name(bad), "{bad}");
        }
    }
}
