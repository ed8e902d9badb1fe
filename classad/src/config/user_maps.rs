//! Maps of users, for `userMap` (`CLASSAD_USER_MAP_NAMES`, `CLASSAD_USER_MAPFILE_x`, `CLASSAD_USER_MAPDATA_x`).
//!
//! ```text
//! * alice          physics,chemistry     alice herself
//! * /^b(.*)$/i     group_\1              whoever the pattern finds, letters of either case; \0 to \9 are what its groups have found
//! * "du de"        q                     blanks within quotes
//! ```
//! # What callers may rely on
//! The first line that is for somebody counts. The first word of a line is a method: `userMap("x", …)` asks lines of the method `*`,
//! `userMap("x.method", …)` those of that one. Maps are read once, by [`Config::user_maps`].

use super::config::Config;
use super::sources::Sources;
use crate::pcre::{Pattern, bytes, characters};
use std::sync::Arc;
use thiserror::Error;

/// A map of users that cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UserMapError {
    /// Its file cannot be read.
    #[error("{setting} = {path}: the map cannot be read")]
    Unreadable {
        /// The setting.
        setting: String,
        /// The file.
        path: String,
        /// Why.
        #[source]
        reason: std::io::Error,
    },
    /// A line says nothing.
    #[error("{place}, line {line}: {found}, expected METHOD USER NAMES or METHOD /PATTERN/ NAMES")]
    NoRow {
        /// The file, or the setting.
        place: String,
        /// Its line, from 1.
        line: usize,
        /// What is there.
        found: String,
    },
    /// A name is listed, and has neither a file nor lines.
    #[error(
        "CLASSAD_USER_MAP_NAMES: {name} has no CLASSAD_USER_MAPFILE_{name} and no CLASSAD_USER_MAPDATA_{name}"
    )]
    Nothing {
        /// The map.
        name: String,
    },
}

/// For whom a line is.
#[derive(Clone, Debug)]
enum Principal {
    Exactly(String),
    Like(Arc<Pattern>),
}

#[derive(Clone, Debug)]
struct Row {
    method: String,
    principal: Principal,
    names: String,
}

/// The maps of a configuration.
#[derive(Clone, Debug, Default)]
pub struct UserMaps {
    maps: Vec<(String, Vec<Row>)>,
}

impl UserMaps {
    /// What a map has for a user, for [`Surroundings::map_user`](crate::Surroundings::map_user).
    #[must_use]
    pub fn find(&self, map: &str, user: &str) -> Option<String> {
        let (map, method) = map.split_once('.').unwrap_or((map, "*"));
        let mut maps = self.maps.iter();
        let (_, rows) = maps.find(|(name, _)| name.eq_ignore_ascii_case(map))?;
        let of_method = |row: &&Row| row.method.eq_ignore_ascii_case(method);
        rows.iter()
            .filter(of_method)
            .find_map(|row| row.names_of(user))
    }
}

impl Row {
    fn names_of(&self, user: &str) -> Option<String> {
        match &self.principal {
            Principal::Exactly(name) => (name == user).then(|| self.names.clone()),
            Principal::Like(pattern) => {
                let text = characters(user.as_bytes());
                let found = pattern.groups(&text, 0)??;
                let mut names = String::new();
                let mut letters = self.names.chars();
                while let Some(letter) = letters.next() {
                    let digit = letters.clone().next().and_then(|next| next.to_digit(10));
                    let (true, Some(digit)) = (letter == '\\', digit) else {
                        names.push(letter);
                        continue;
                    };
                    letters.next();
                    let group = usize::try_from(digit)
                        .ok()
                        .and_then(|digit| found.get(digit));
                    if let Some(Some((from, to))) = group {
                        let part = bytes(text.get(*from..*to).unwrap_or_default());
                        names.push_str(&String::from_utf8_lossy(&part));
                    }
                }
                Some(names)
            }
        }
    }
}

impl Config {
    /// The maps of users that it names.
    ///
    /// # Errors
    /// [`UserMapError`]: a file that cannot be read, or a line that says nothing.
    pub fn user_maps(&self, sources: &dyn Sources) -> Result<UserMaps, UserMapError> {
        let names = self.get("CLASSAD_USER_MAP_NAMES").unwrap_or_default();
        let names = names
            .split([',', ' ', '\t', '\n'])
            .filter(|name| !name.is_empty());
        let said = |setting: &str| {
            let text = self.get(setting);
            text.filter(|text| !text.trim().is_empty())
        };
        let mut maps = vec![];
        for name in names {
            let file = format!("CLASSAD_USER_MAPFILE_{name}");
            let data = format!("CLASSAD_USER_MAPDATA_{name}");
            let rows = match (said(&file), said(&data)) {
                (Some(path), _) => {
                    let path = path.trim().to_owned();
                    let text = sources.read(&path);
                    let text = text.map_err(|reason| UserMapError::Unreadable {
                        setting: file,
                        path: path.clone(),
                        reason,
                    })?;
                    rows(&path, &String::from_utf8_lossy(&text))?
                }
                (None, Some(text)) => rows(&data, &text)?,
                (None, None) => {
                    let name = name.to_owned();
                    return Err(UserMapError::Nothing { name });
                }
            };
            maps.push((name.to_owned(), rows));
        }
        Ok(UserMaps { maps })
    }
}

fn rows(place: &str, text: &str) -> Result<Vec<Row>, UserMapError> {
    let mut rows = vec![];
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let row = row(line).ok_or_else(|| UserMapError::NoRow {
            place: place.to_owned(),
            line: number,
            found: line.to_owned(),
        })?;
        rows.push(row);
    }
    Ok(rows)
}

fn row(line: &str) -> Option<Row> {
    let (method, rest) = word(line)?;
    let (principal, rest) = match rest.trim_start().strip_prefix('/') {
        Some(pattern) => {
            let (pattern, rest) = until(pattern, '/')?;
            let (options, rest) = rest.split_at(rest.find(char::is_whitespace)?);
            // What U asks for, matching as little as possible, changes no answer but what groups find: it is not there.
            if !options.chars().all(|option| option == 'i') {
                return None;
            }
            let pattern = Pattern::compile(pattern.as_bytes(), options)?;
            (Principal::Like(Arc::new(pattern)), rest)
        }
        None => {
            let (user, rest) = word(rest)?;
            (Principal::Exactly(user), rest)
        }
    };
    let (names, _) = word(rest)?;
    Some(Row {
        method,
        principal,
        names,
    })
}

/// A word, or what is in quotes, and what is behind it.
fn word(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    if let Some(quoted) = text.strip_prefix('"') {
        return until(quoted, '"');
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (!word.is_empty()).then(|| (word.to_owned(), rest))
}

/// Up to a sign that no backslash stands before; that backslash goes.
fn until(text: &str, end: char) -> Option<(String, &str)> {
    let mut found = String::new();
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            _ if letter == end => return Some((found, &text[at + letter.len_utf8()..])),
            '\\' if letters.peek().is_some_and(|(_, next)| *next == end) => {
                found.push(end);
                letters.next();
            }
            other => found.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigOptions;
    use crate::{Context, Nowhere, Surroundings, parse_expression};

    struct Users(UserMaps);

    impl Surroundings for Users {
        fn now(&self) -> i64 {
            0
        }

        fn map_user(&self, map: &str, user: &str) -> Option<String> {
            self.0.find(map, user)
        }
    }

    const CONFIG: &str = "CLASSAD_USER_MAP_NAMES = Groups, other\nCLASSAD_USER_MAPDATA_Groups @=end\n# who is in which\n* alice physics,chemistry\n\
        * /^B(.*)$/i up\\1,\\0\n* \"du de\" \"q r\"\nkerberos alice realm\n* alice never\n* /.*/ everybody\n@end\n\
        CLASSAD_USER_MAPDATA_other = * carol solo\n";

    fn maps(text: &str) -> Result<UserMaps, UserMapError> {
        let config = Config::parse(text, &Nowhere, &ConfigOptions::default()).expect("no fault");
        config.user_maps(&Nowhere)
    }

    #[test]
    fn users_have_what_the_first_line_says_that_is_for_them() {
        let users = Users(maps(CONFIG).expect("maps"));
        for (call, expected) in [
            ("userMap(\"groups\", \"alice\")", "\"physics,chemistry\""),
            (
                "userMap(\"Groups\", \"alice\", \"CHEMISTRY\")",
                "\"chemistry\"",
            ),
            ("userMap(\"Groups\", \"alice\", \"biology\")", "\"physics\""),
            ("userMap(\"Groups\", \"bill\")", "\"upill,bill\""),
            ("userMap(\"Groups\", \"du de\")", "\"q r\""),
            ("userMap(\"Groups\", \"Alice\")", "\"everybody\""),
            ("userMap(\"Groups.kerberos\", \"alice\")", "\"realm\""),
            ("userMap(\"Groups.kerberos\", \"bill\")", "undefined"),
            ("userMap(\"other\", \"alice\")", "undefined"),
            ("userMap(\"other\", \"alice\", \"a\", \"none\")", "\"none\""),
            ("userMap(\"third\", \"alice\")", "undefined"),
        ] {
            let expr = parse_expression(call).expect(call);
            let value = Context::new(&users).eval(&expr).expect(call);
            assert_eq!(value.to_string(), expected, "{call}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_map_is_named_with_its_line() {
        for (text, expected) in [
            (
                "CLASSAD_USER_MAP_NAMES = m\nCLASSAD_USER_MAPDATA_m @=end\n* a b\n* c\n@end\n",
                "CLASSAD_USER_MAPDATA_m, line 2: * c, expected METHOD USER NAMES or METHOD /PATTERN/ NAMES",
            ),
            (
                "CLASSAD_USER_MAP_NAMES = m\nCLASSAD_USER_MAPDATA_m = * /(/ b\n",
                "CLASSAD_USER_MAPDATA_m, line 1: * /(/ b, expected METHOD USER NAMES or METHOD /PATTERN/ NAMES",
            ),
            (
                "CLASSAD_USER_MAP_NAMES = m\nCLASSAD_USER_MAPFILE_m = /nowhere\n",
                "CLASSAD_USER_MAPFILE_m = /nowhere: the map cannot be read",
            ),
            (
                "CLASSAD_USER_MAP_NAMES = m\n",
                "CLASSAD_USER_MAP_NAMES: m has no CLASSAD_USER_MAPFILE_m and no CLASSAD_USER_MAPDATA_m",
            ),
        ] {
            let error = maps(text).expect_err(text);
            assert_eq!(error.to_string(), expected);
        }
    }
}
