//! Which Linux it is: `/etc/issue` as HTCondor reads it, and os-release(5) where that says nothing.

/// A distribution, in words of HTCondor's machine ads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// `Debian`; `LINUX` if it is none that HTCondor knows.
    pub name: &'static str,
    /// `Debian GNU/Linux 12`; `Unknown` if nothing says it.
    pub long_name: String,
    /// The first number in the long name, 0 without one.
    pub major: i64,
    /// A hundred times that, and up to two digits behind a point.
    pub version: i64,
}

/// Words of which all must be in a long name, whatever their letters, and what it is then; the first row that fits.
const KNOWN: [(&[&str], &str); 14] = [
    (&["red", "hat"], "RedHat"),
    (&["fedora"], "Fedora"),
    (&["ubuntu"], "Ubuntu"),
    (&["debian"], "Debian"),
    (&["scientific", "cern"], "SLCern"),
    (&["scientific", "slf"], "SLFermi"),
    (&["scientific"], "SL"),
    (&["centos"], "CentOS"),
    (&["rocky"], "Rocky"),
    (&["almalinux"], "AlmaLinux"),
    (&["amazon", "linux"], "AmazonLinux"),
    (&["opensuse"], "openSUSE"),
    (&["suse"], "SUSE"),
    (&[], "LINUX"),
];

impl Distribution {
    /// From the two files; either may be empty.
    pub(in crate::measure) fn parse(issue: &[u8], os_release: &[u8]) -> Self {
        let issue = first_line(issue);
        let long_name = match name_of(&issue) {
            "LINUX" => pretty(os_release).unwrap_or_else(|| "Unknown".to_owned()),
            _ => issue,
        };
        let (major, minor) = numbers(&long_name);
        Distribution {
            name: name_of(&long_name),
            major,
            version: major.saturating_mul(100).saturating_add(minor),
            long_name,
        }
    }

    /// `Debian12`.
    #[must_use]
    pub fn and_version(&self) -> String {
        format!("{}{}", self.name, self.major)
    }
}

/// Without the `\n \l` that getty(8) replaces.
fn first_line(issue: &[u8]) -> String {
    let text = String::from_utf8_lossy(issue);
    let mut line = text.lines().next().unwrap_or_default().trim();
    while let Some(rest) = line.strip_suffix("\\n").or(line.strip_suffix("\\l")) {
        line = rest.trim_end();
    }
    line.to_owned()
}

/// NAME and VERSION_ID of os-release(5).
fn pretty(os_release: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(os_release);
    let named = |wanted: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name.trim() == wanted)?;
        let value = value.trim().trim_matches(['"', '\'']);
        (!value.is_empty()).then(|| value.to_owned())
    };
    let name = named("NAME")?;
    Some(match named("VERSION_ID") {
        Some(version) => format!("{name} {version}"),
        None => name,
    })
}

fn name_of(long_name: &str) -> &'static str {
    let lower = long_name.to_ascii_lowercase();
    let fits = |words: &&[&str]| words.iter().all(|word| lower.contains(word));
    let mut rows = KNOWN.iter();
    rows.find(|(words, _)| fits(words))
        .map_or("LINUX", |(_, name)| name)
}

/// The first number, and up to two digits behind a point behind it.
fn numbers(text: &str) -> (i64, i64) {
    let from = text.find(|c: char| c.is_ascii_digit());
    let text = &text[from.unwrap_or(text.len())..];
    let len = |text: &str| {
        text.bytes()
            .take_while(u8::is_ascii_digit)
            .count()
            .min(text.len())
    };
    let (major, rest) = text.split_at(len(text));
    let minor = rest.strip_prefix('.').unwrap_or_default();
    let minor = &minor[..len(minor).min(2)];
    (major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
}
