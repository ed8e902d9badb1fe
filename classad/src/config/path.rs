//! `$F…(PATH)`, `$BASENAME`, `$DIRNAME`: parts of a path.
//!
//! ```text
//! p whole directory    d its last part, dd its last two …    n name    x extension, with its dot
//! q in quotes, qa in single ones    b bare: no / at the end of p or d, no dot before x    u / for \    w \ for /
//! ```

/// Which parts, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathParts {
    extension: bool,
    name: bool,
    directory: bool,
    /// How many of its last parts.
    last: usize,
    bare: bool,
    quoted: bool,
    single: bool,
    separator: Option<char>,
}

/// What letters ask for. `f`, the full path, changes nothing: a configuration has no directory that it begins in.
pub(super) fn parts_of(letters: &str) -> PathParts {
    let mut parts = PathParts::default();
    for letter in letters.chars() {
        match letter.to_ascii_lowercase() {
            'x' => parts.extension = true,
            'n' => parts.name = true,
            'p' => parts.directory = true,
            'd' => parts.last += 1,
            'b' => parts.bare = true,
            'q' => parts.quoted = true,
            'a' => parts.single = true,
            'u' => parts.separator = Some('/'),
            'w' => parts.separator = Some('\\'),
            _ => {}
        }
    }
    parts
}

impl PathParts {
    /// These parts of a path, which may be in quotes; a double one at its beginning goes also if there is none at its end.
    pub(super) fn of(&self, path: &str) -> String {
        let quote = if self.single { '\'' } else { '"' };
        let mut path = unquoted(path);
        for opening in ['"', quote].iter().take(1 + usize::from(self.quoted)) {
            if let Some(rest) = path.strip_prefix(*opening) {
                path = rest.strip_suffix(*opening).unwrap_or(rest);
                break;
            }
        }
        let path = match self.separator {
            Some(separator) => path.replace(['/', '\\'], separator.encode_utf8(&mut [0; 4])),
            None => path.to_owned(),
        };
        let part = self.part(&path);
        match self.quoted {
            true => format!("{quote}{part}{quote}"),
            false => part.to_owned(),
        }
    }

    fn part<'p>(&self, path: &'p str) -> &'p str {
        let name_at = path.rfind('/').map_or(0, |at| at + 1);
        let name = &path[name_at..];
        // A name that begins with its only dot has no extension.
        let dot = name.rfind('.').filter(|at| *at > 0);
        let extension_at = dot.map_or(path.len(), |at| name_at + at);
        let has_directory = name_at > 0;
        let (name_or_extension, directory) = (self.name || self.extension, self.directory);
        let directory = directory && (has_directory || !name_or_extension);
        let last = self.last > 0 && (has_directory || !name_or_extension);
        let directory_end = match self.bare && has_directory {
            true => name_at - 1,
            false => name_at,
        };
        if last {
            if !has_directory {
                return "";
            }
            let start = self.last_start(path);
            return match (self.name, self.extension) {
                (true, false) => &path[start..extension_at],
                (false, false) => path.get(start..directory_end).unwrap_or_default(),
                (_, true) => &path[start..],
            };
        }
        match (directory, self.name, self.extension) {
            (false, false, true) => {
                let bare = usize::from(self.bare && extension_at < path.len());
                &path[extension_at + bare..]
            }
            (false, true, true) => name,
            (false, true, false) => &path[name_at..extension_at],
            (true, false, false) => &path[..directory_end],
            (true, true, false) => &path[..extension_at],
            // The original leaves the name between both.
            (true, _, true) | (false, false, false) => path,
        }
    }

    /// Where the last parts of the directory begin.
    fn last_start(&self, path: &str) -> usize {
        let mut starts: Vec<usize> = path
            .match_indices(['/', '\\'])
            .map(|(at, _)| at + 1)
            .collect();
        starts.truncate(starts.len().saturating_sub(self.last));
        starts.pop().unwrap_or(0)
    }
}

fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if text.len() > 1
            && let Some(inner) = text
                .strip_prefix(quote)
                .and_then(|rest| rest.strip_suffix(quote))
        {
            return inner;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &str, letters: &str) -> Vec<String> {
        let letters = letters.split(' ');
        letters.map(|letters| parts_of(letters).of(path)).collect()
    }

    #[test]
    fn parts_are_those_of_the_original() {
        let letters = "p n x d dd pn nx px q qa pq dq pb xb db w ddd dnx dn dx ddnx";
        let parts = all("/a/b/c.tar.gz", letters);
        let expected = [
            "/a/b/",
            "c.tar",
            ".gz",
            "b/",
            "a/b/",
            "/a/b/c.tar",
            "c.tar.gz",
            "/a/b/c.tar.gz",
            "\"/a/b/c.tar.gz\"",
            "'/a/b/c.tar.gz'",
            "\"/a/b/\"",
            "\"b/\"",
            "/a/b",
            "gz",
            "b",
            "\\a\\b\\c.tar.gz",
            "/a/b/",
            "b/c.tar.gz",
            "b/c.tar",
            "b/c.tar.gz",
            "a/b/c.tar.gz",
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn names_without_a_directory_have_none() {
        let parts = all("plain", "p n x d dd pn nx px q dq pb xb db pnx");
        let expected = [
            "",
            "plain",
            "",
            "",
            "",
            "plain",
            "plain",
            "",
            "\"plain\"",
            "\"\"",
            "",
            "",
            "",
            "plain",
        ];
        assert_eq!(parts, expected);
        assert_eq!(
            all("dir/", "p n x d pn nx px"),
            ["dir/", "", "", "dir/", "dir/", "", "dir/"]
        );
        assert_eq!(all(".hid", "p n x d nb"), ["", ".hid", "", "", ".hid"]);
        assert_eq!(
            all("\"/x/y z/f.e\"", "n p "),
            ["f", "/x/y z/", "/x/y z/f.e"]
        );
    }

    #[test]
    fn more_parts_than_there_are_is_all_of_them() {
        assert_eq!(all("/a/b", "dddddd dddddddn"), ["/a/", "/a/b"]);
        assert_eq!(all("", "p n x d q"), ["", "", "", "", "\"\""]);
    }
}
