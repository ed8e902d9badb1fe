//! The text of a platform: `LINUX X86_64 LEVEL [+FEATURE,...] KEY=VALUE ...`.

use super::{Level, Limits, Platform};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A platform string is never longer; a limit before anything is believed.
const MAX_LEN: usize = 64 * 1024;
/// CPU numbers stop here (the kernel's NR_CPUS is at most 8192).
const MAX_CPU: u32 = 65535;

/// Why a text is not a platform.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParsePlatformError {
    /// It does not begin with "LINUX X86_64".
    #[error("platform begins with {found:?}, expected \"LINUX X86_64\"")]
    System {
        /// Its first words.
        found: String,
    },
    /// The third word is no microarchitecture level.
    #[error("platform level is {found:?}, expected v1, v2, v3 or v4")]
    Level {
        /// The word.
        found: String,
    },
    /// A word that this version does not know: what it asks for cannot be judged.
    #[error("platform has an unknown word {word:?}")]
    Unknown {
        /// The word.
        word: String,
    },
    /// A value that cannot be read.
    #[error("platform has {word:?}, expected {expected}")]
    Value {
        /// The word.
        word: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A word that must be there and is not.
    #[error("platform has no {key}")]
    Absent {
        /// The word.
        key: &'static str,
    },
    /// Longer than any platform.
    #[error("platform of {found} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Bytes found.
        found: usize,
        /// The limit.
        limit: usize,
    },
}

/// A limit as text.
pub(super) fn limit(value: u64) -> String {
    match value {
        u64::MAX => "unlimited".to_owned(),
        value => value.to_string(),
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level();
        write!(f, "LINUX X86_64 {}", level.map_or("v0", Level::name))?;
        let of_level: BTreeSet<_> = level.into_iter().flat_map(Level::features).collect();
        let extra = self
            .features
            .iter()
            .filter(|name| !of_level.contains(name.as_str()));
        list(f, "", extra.map(|name| format!("+{name}")))?;
        write!(f, " xsave={:#x}", self.xsave)?;
        if let Some(components) = self.within {
            write!(f, " within={components:#x}")?;
        }
        let layout = self.layout.iter().map(|(bit, at)| format!("{bit}@{at}"));
        list(f, "layout=", layout)?;
        write!(f, " page={} va={}", self.page, self.va)?;
        if let Some(bytes) = self.sigframe {
            write!(f, " sigframe={bytes}")?;
        }
        list(f, "cpus=", ranges(&self.cpus).into_iter())?;
        let unlimited = self.hard.unlimited.then(|| "inf".to_owned());
        let listed = self.hard.listed.iter().map(|(name, value)| match value {
            &u64::MAX => format!("{name}:inf"),
            value => format!("{name}:{value}"),
        });
        list(f, "hard=", unlimited.into_iter().chain(listed))?;
        let huge = self
            .huge
            .iter()
            .map(|(shift, count)| format!("{shift}:{count}"));
        list(f, "huge=", huge)?;
        if self.max_id != 0 {
            write!(f, " maxid={}", self.max_id)?;
        }
        list(f, "kernel=", self.kernel.iter().cloned())?;
        if let Some(level) = self.requested {
            let degree = if self.proven { "proven" } else { "requested" };
            write!(f, " baseline={},{degree}", level.name())?;
        }
        Ok(())
    }
}

fn list(f: &mut fmt::Formatter<'_>, key: &str, parts: impl Iterator<Item = String>) -> fmt::Result {
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() {
        return Ok(());
    }
    write!(f, " {key}{}", parts.join(","))
}

fn ranges(numbers: &BTreeSet<u32>) -> Vec<String> {
    let mut runs: Vec<(u32, u32)> = vec![];
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs.into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect()
}

impl FromStr for Platform {
    type Err = ParsePlatformError;

    fn from_str(text: &str) -> Result<Self, ParsePlatformError> {
        if text.len() > MAX_LEN {
            return Err(ParsePlatformError::TooLong {
                found: text.len(),
                limit: MAX_LEN,
            });
        }
        let mut words = text.split_ascii_whitespace();
        let (system, machine) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if (system, machine) != ("LINUX", "X86_64") {
            return Err(ParsePlatformError::System {
                found: format!("{system} {machine}"),
            });
        }
        let level = words.next().unwrap_or("");
        let mut platform = Platform::default();
        if level != "v0" {
            let known = Level::from_name(level).filter(|known| known.name() == level);
            let known = known.ok_or_else(|| ParsePlatformError::Level {
                found: level.to_owned(),
            })?;
            platform.features = known.features().map(str::to_owned).collect();
        }
        let mut seen = BTreeSet::new();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or(("+", word));
            if !seen.insert(key) {
                return Err(wrong(word, "each word once"));
            }
            platform.read_word(word, key, value)?;
        }
        for key in ["xsave", "page", "va"] {
            if !seen.contains(key) {
                return Err(ParsePlatformError::Absent { key });
            }
        }
        Ok(platform)
    }
}

fn wrong(word: &str, expected: &'static str) -> ParsePlatformError {
    ParsePlatformError::Value {
        word: word.to_owned(),
        expected,
    }
}

fn number<T: FromStr>(word: &str, text: &str) -> Result<T, ParsePlatformError> {
    text.parse().map_err(|_| wrong(word, "a number"))
}

fn name(word: &str, text: &str) -> Result<String, ParsePlatformError> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if text.is_empty() || !text.bytes().all(sound) {
        return Err(wrong(word, "names of letters, digits, '_', '.' and '-'"));
    }
    Ok(text.to_owned())
}

fn pair<'a>(
    word: &str,
    text: &'a str,
    between: char,
) -> Result<(&'a str, &'a str), ParsePlatformError> {
    text.split_once(between)
        .ok_or_else(|| wrong(word, "pairs joined by ':' or '@'"))
}

fn components(word: &str, text: &str) -> Result<u64, ParsePlatformError> {
    let digits = text
        .strip_prefix("0x")
        .ok_or_else(|| wrong(word, "0x..."))?;
    u64::from_str_radix(digits, 16).map_err(|_| wrong(word, "a hexadecimal number"))
}

impl Platform {
    fn read_word(&mut self, word: &str, key: &str, value: &str) -> Result<(), ParsePlatformError> {
        match key {
            "+" => {
                for part in value.split(',') {
                    let part =
                        part.strip_prefix('+')
                            .ok_or_else(|| ParsePlatformError::Unknown {
                                word: word.to_owned(),
                            })?;
                    self.features.insert(name(word, part)?);
                }
            }
            "xsave" => self.xsave = components(word, value)?,
            "within" => self.within = Some(components(word, value)?),
            "layout" => {
                for part in value.split(',') {
                    let (bit, at) = pair(word, part, '@')?;
                    self.layout.insert(number(word, bit)?, number(word, at)?);
                }
            }
            "page" => self.page = number(word, value)?,
            "va" => self.va = number(word, value)?,
            "sigframe" => self.sigframe = Some(number(word, value)?),
            "cpus" => {
                for part in value.split(',') {
                    let (first, last) = part.split_once('-').unwrap_or((part, part));
                    let (first, last): (u32, u32) = (number(word, first)?, number(word, last)?);
                    if last > MAX_CPU || first > last {
                        return Err(wrong(word, "CPU numbers up to 65535"));
                    }
                    self.cpus.extend(first..=last);
                }
            }
            "hard" => self.hard = read_limits(word, value)?,
            "huge" => {
                for part in value.split(',') {
                    let (shift, count) = pair(word, part, ':')?;
                    self.huge.insert(number(word, shift)?, number(word, count)?);
                }
            }
            "maxid" => self.max_id = number(word, value)?,
            "baseline" => {
                let (level, degree) = value.split_once(',').unwrap_or((value, ""));
                let level = Level::from_name(level).filter(|known| known.name() == level);
                let known = level.filter(|_| matches!(degree, "requested" | "proven"));
                let expected = "a level and \",requested\" or \",proven\"";
                self.requested = Some(known.ok_or_else(|| wrong(word, expected))?);
                self.proven = degree == "proven";
            }
            "kernel" => {
                for part in value.split(',') {
                    self.kernel.insert(name(word, part)?);
                }
            }
            _ => {
                return Err(ParsePlatformError::Unknown {
                    word: word.to_owned(),
                });
            }
        }
        Ok(())
    }
}

fn read_limits(word: &str, value: &str) -> Result<Limits, ParsePlatformError> {
    let mut limits = Limits::default();
    for part in value.split(',') {
        if part == "inf" {
            limits.unlimited = true;
            continue;
        }
        let (resource, value) = pair(word, part, ':')?;
        let value = if value == "inf" {
            u64::MAX
        } else {
            number(word, value)?
        };
        limits.listed.insert(name(word, resource)?, value);
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;

    fn any_platform() -> impl Strategy<Value = Platform> {
        let name = "[a-z0-9_]{1,12}";
        let level = prop_oneof![
            Just(None),
            Just(Some(Level::V1)),
            Just(Some(Level::V3)),
            Just(Some(Level::V4))
        ];
        let processor = (
            level,
            btree_set(name, 0..6),
            (any::<u64>(), proptest::option::of(any::<u64>())),
            btree_map(3u32..64, any::<u32>(), 0..4),
            any::<u64>(),
            any::<u32>(),
            proptest::option::of(any::<u64>()),
        );
        let grants = (
            btree_set(0u32..200, 0..20),
            any::<bool>(),
            btree_map(name, any::<u64>(), 0..4),
            btree_map(any::<u32>(), any::<u64>(), 0..3),
            any::<u64>(),
            btree_set(name, 0..4),
            proptest::option::of((prop_oneof![Just(Level::V2), Just(Level::V3)], any::<bool>())),
        );
        (processor, grants).prop_map(|(processor, grants)| {
            let (level, mut features, (xsave, within), layout, page, va, sigframe) = processor;
            let (cpus, unlimited, listed, huge, max_id, kernel, baseline) = grants;
            let of_level = level.into_iter().flat_map(Level::features);
            features.extend(of_level.into_iter().map(str::to_owned));
            Platform {
                features,
                xsave,
                within,
                layout,
                page,
                va,
                sigframe,
                cpus,
                hard: Limits { unlimited, listed },
                huge,
                max_id,
                kernel,
                requested: baseline.map(|(level, _)| level),
                proven: baseline.is_some_and(|(_, proven)| proven),
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_displayed_is_parsed_back(platform in any_platform()) {
            let text = platform.to_string();
            prop_assert_eq!(text.parse::<Platform>(), Ok(platform), "{}", text);
        }

        #[test]
        fn soup_is_an_error_never_a_panic(text in "(LINUX X86_64 v[0-9] )?[a-z0-9=+:,@ -]{0,60}") {
            let _ = text.parse::<Platform>();
        }
    }

    #[test]
    fn this_machine_reads_back() {
        let here = Platform::of_this_machine();
        assert_eq!(here.to_string().parse::<Platform>(), Ok(here));
    }

    #[test]
    fn unknown_features_are_kept_and_unknown_keys_refused() {
        let platform: Platform = "LINUX X86_64 v2 +quantum xsave=0x3 page=4096 va=47"
            .parse()
            .expect("parses");
        assert!(platform.features.contains("quantum"));
        let found = "LINUX X86_64 v2 xsave=0x3 page=4096 va=47 gpu=1".parse::<Platform>();
        let word = "gpu=1".to_owned();
        assert_eq!(found, Err(ParsePlatformError::Unknown { word }));
        let found = "SOLARIS SPARC".parse::<Platform>();
        assert!(matches!(found, Err(ParsePlatformError::System { .. })));
        let found = "LINUX X86_64 v2 xsave=0x3 page=4096".parse::<Platform>();
        assert_eq!(found, Err(ParsePlatformError::Absent { key: "va" }));
    }
}
