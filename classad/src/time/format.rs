//! `strftime`, as the C locale has it.

use super::Fields;

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A date in a pattern. A conversion that is none stays as it is.
pub(crate) fn format(pattern: &[u8], fields: &Fields, zone: &str) -> Vec<u8> {
    let mut text = vec![];
    let mut rest = pattern.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            text.push(byte);
            continue;
        }
        let Some(conversion) = rest.next() else {
            text.push(b'%');
            break;
        };
        match convert(conversion, fields, zone) {
            Some(converted) => text.extend_from_slice(converted.as_bytes()),
            None => text.extend([b'%', conversion]),
        }
    }
    text
}

fn convert(conversion: u8, fields: &Fields, zone: &str) -> Option<String> {
    let Fields {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = *fields;
    let weekday = fields.day_of_week();
    let of_year = fields.day_of_year();
    let day_name = || {
        usize::try_from(weekday)
            .ok()
            .and_then(|at| DAYS.get(at))
            .copied()
            .unwrap_or("?")
    };
    let month_name = || {
        usize::try_from(month - 1)
            .ok()
            .and_then(|at| MONTHS.get(at))
            .copied()
            .unwrap_or("?")
    };
    let short = |name: &str| name.chars().take(3).collect::<String>();
    let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    let half = if hour < 12 { "AM" } else { "PM" };
    let all = |pattern: &str| {
        String::from_utf8_lossy(&format(pattern.as_bytes(), fields, zone)).into_owned()
    };
    Some(match conversion {
        b'a' => short(day_name()),
        b'A' => day_name().to_owned(),
        b'b' | b'h' => short(month_name()),
        b'B' => month_name().to_owned(),
        b'c' => all("%a %b %e %H:%M:%S %Y"),
        b'C' => format!("{:02}", year.div_euclid(100)),
        b'd' => format!("{day:02}"),
        b'D' | b'x' => all("%m/%d/%y"),
        b'e' => format!("{day:2}"),
        b'F' => all("%Y-%m-%d"),
        b'g' => format!("{:02}", fields.iso_week().0.rem_euclid(100)),
        b'G' => fields.iso_week().0.to_string(),
        b'H' => format!("{hour:02}"),
        b'I' => format!("{twelve:02}"),
        b'j' => format!("{:03}", of_year + 1),
        b'k' => format!("{hour:2}"),
        b'l' => format!("{twelve:2}"),
        b'm' => format!("{month:02}"),
        b'M' => format!("{minute:02}"),
        b'n' => "\n".to_owned(),
        b'p' => half.to_owned(),
        b'P' => half.to_ascii_lowercase(),
        b'r' => all("%I:%M:%S %p"),
        b'R' => all("%H:%M"),
        b's' => fields.seconds().to_string(),
        b'S' => format!("{second:02}"),
        b't' => "\t".to_owned(),
        b'T' | b'X' => all("%H:%M:%S"),
        b'u' => (if weekday == 0 { 7 } else { weekday }).to_string(),
        b'U' => format!("{:02}", (of_year + 7 - weekday) / 7),
        b'V' => format!("{:02}", fields.iso_week().1),
        b'w' => weekday.to_string(),
        b'W' => format!("{:02}", (of_year + 7 - (weekday + 6) % 7) / 7),
        b'y' => format!("{:02}", year.rem_euclid(100)),
        b'Y' => year.to_string(),
        b'z' => "+0000".to_owned(),
        b'Z' => zone.to_owned(),
        b'%' => "%".to_owned(),
        _ => return None,
    })
}
