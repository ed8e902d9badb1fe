//! Names that mean something else than the program thinks: Condor's `file_remaps`, `local_files`, `append_files`,
//! `fetch_files` and `compress_files` (condor_submit(1), "standard universe").
//!
//! ```text
//! length, then for each rule:  kind 1, length of from 2, length of to 2, from, to      little endian
//! ```
//! A rule is about a file that the program calls so, about one that is called so in whatever folder if it has no slash, about
//! one with that absolute name (a relative one begins where the job does), and about all below a folder that it names. A zero in `from`
//! stands for any bytes, or none: Condor's `*`.
//!
//! # What callers may rely on
//! They are made before the job's first process and never change. Text is compared, not files: links are not followed.

/// Bytes that rules may take.
pub const RULES_LEN: usize = 16 << 10;
/// Bytes of the longest name (PATH_MAX without its end).
const LONGEST: usize = 4095;
/// Bytes before the names.
const HEAD: usize = 5;

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// It has another name at the shadow.
    Remap = 1,
    /// It is another file, of the machine where the job runs.
    RemapHere = 2,
    /// It is the file of that name of the machine where the job runs; where the rule's is relative, `to` is where the job begins there.
    Here = 3,
    /// It is only appended to, and never emptied.
    Append = 4,
    /// All of it is fetched when it is opened for reading.
    Fetch = 5,
    /// It is stored compressed at the shadow.
    Compress = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [
            Kind::Remap,
            Kind::RemapHere,
            Kind::Here,
            Kind::Append,
            Kind::Fetch,
            Kind::Compress,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// What it does.
    pub kind: Kind,
    /// About what; without a slash at its end.
    pub from: &'a [u8],
    /// What is meant instead; an absolute name, or empty.
    pub to: &'a [u8],
}

impl Rule<'_> {
    /// Adds it to `bytes`, which begin with their length; whether there was room.
    #[must_use]
    pub fn add(&self, bytes: &mut [u8; RULES_LEN]) -> bool {
        let len = length(bytes);
        let (Ok(from_len), Ok(to_len)) =
            (u16::try_from(self.from.len()), u16::try_from(self.to.len()))
        else {
            return false;
        };
        let size = HEAD + self.from.len() + self.to.len();
        let Some(place) = bytes.get_mut(4 + len..4 + len + size) else {
            return false;
        };
        place[0] = self.kind as u8;
        place[1..3].copy_from_slice(&from_len.to_le_bytes());
        place[3..5].copy_from_slice(&to_len.to_le_bytes());
        place[HEAD..HEAD + self.from.len()].copy_from_slice(self.from);
        place[HEAD + self.from.len()..].copy_from_slice(self.to);
        bytes[..4].copy_from_slice(&((len + size) as u32).to_le_bytes());
        true
    }

    /// What follows, if it is about this file or a folder above it: nothing, or a name without a slash before it.
    fn rest<'n>(&self, name: &Name<'n>) -> Option<&'n [u8]> {
        let is_simple = !self.from.contains(&b'/');
        let simple = name.given.rsplit(|byte| *byte == b'/').next();
        let is_called_so = |simple| matches(simple, self.from);
        let in_any_folder = || (is_simple && simple.is_some_and(is_called_so)).then_some(&b""[..]);
        let absolute = || {
            let whole = name.whole?;
            let from_start = match self.from.first() {
                Some(b'/') => Some(whole),
                _ if name.start == b"/" => whole.strip_prefix(b"/"),
                _ => whole.strip_prefix(name.start)?.strip_prefix(b"/"),
            };
            below(from_start?, self.from)
        };
        below(name.given, self.from)
            .or_else(in_any_folder)
            .or_else(absolute)
    }
}

/// Stands for any bytes in [`Rule::from`].
pub const ANY: u8 = 0;

/// What follows `folder`, if `name` is that or below it.
fn below<'n>(name: &'n [u8], folder: &[u8]) -> Option<&'n [u8]> {
    if folder.contains(&ANY) {
        let slashes = (0..name.len()).filter(|at| name[*at] == b'/');
        let ends = slashes
            .map(|at| (at, at + 1))
            .chain([(name.len(), name.len())]);
        let mut found = ends.filter(|(end, _)| matches(&name[..*end], folder));
        return found.next().map(|(_, rest)| &name[rest..]);
    }
    match name.strip_prefix(folder)? {
        b"" => Some(b""),
        rest => rest.strip_prefix(b"/"),
    }
}

/// Whether a name is one that `pattern` means.
fn matches(name: &[u8], pattern: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == ANY);
    let first = parts.next().unwrap_or_default();
    let Some(mut left) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return left.is_empty();
    };
    for part in parts.filter(|part| !part.is_empty()) {
        match left.windows(part.len()).position(|found| found == part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

/// A name as a program uses it.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// As it stands.
    pub given: &'a [u8],
    /// From the root on, without `.`, `..` and doubled slashes; none if it is not known.
    pub whole: Option<&'a [u8]>,
    /// Where the job begins, such a name.
    pub start: &'a [u8],
}

/// What all rules say of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meaning<'r, 'n> {
    /// It is on the machine where the job runs.
    pub here: bool,
    /// It is `here` under the name that the program uses; the shadow's, if it is not to be had, has that name, too.
    pub same_name: bool,
    /// It is called so, and then, behind a slash, so.
    pub renamed: Option<(&'r [u8], &'n [u8])>,
    /// It is only appended to.
    pub append: bool,
    /// It is fetched whole.
    pub fetch: bool,
    /// It is stored compressed.
    pub compress: bool,
}

/// The rules of a job.
#[derive(Debug)]
#[repr(C)]
pub struct Rules {
    bytes: [u8; RULES_LEN],
}

impl Rules {
    /// What these bytes say.
    #[must_use]
    #[allow(unsafe_code)] // 16 KiB are too much for a stack
    pub fn of(bytes: &[u8; RULES_LEN]) -> &Self {
        let rules = core::ptr::from_ref(bytes).cast::<Rules>();
        // SAFETY: it is nothing but such bytes, which may be any.
        unsafe { &*rules }
    }
}

fn length(bytes: &[u8; RULES_LEN]) -> usize {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
}

impl Rules {
    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        length(&self.bytes) == 0
    }

    /// Up to what is no rule.
    fn all(&self) -> impl Iterator<Item = Rule<'_>> {
        let end = (4 + length(&self.bytes)).min(RULES_LEN);
        let mut left = self.bytes.get(4..end).unwrap_or_default();
        core::iter::from_fn(move || {
            let (head, rest) = left.split_at_checked(HEAD)?;
            let len = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
            let (from, rest) = rest.split_at_checked(len(1))?;
            let (to, rest) = rest.split_at_checked(len(3))?;
            left = rest;
            Some(Rule {
                kind: Kind::of(head[0])?,
                from,
                to,
            })
        })
    }

    /// What they say of a name; the first rule of a kind counts, a remap before a folder's.
    #[must_use]
    pub fn meaning<'r, 'n>(&'r self, name: &Name<'n>) -> Meaning<'r, 'n> {
        let mut meaning = Meaning::default();
        for rule in self.all() {
            let Some(rest) = rule.rest(name) else {
                continue;
            };
            match rule.kind {
                Kind::Remap | Kind::RemapHere if meaning.renamed.is_none() && !meaning.here => {
                    meaning.renamed = Some((rule.to, rest));
                    meaning.here = rule.kind == Kind::RemapHere;
                }
                Kind::Here if meaning.renamed.is_none() && !meaning.here => {
                    meaning.here = true;
                    meaning.same_name = true;
                    let from_start = name.whole.and_then(|whole| match rule.from.first() {
                        Some(b'/') => None,
                        _ => whole.strip_prefix(name.start)?.strip_prefix(b"/"),
                    });
                    let whole = name.whole.map(|whole| (&b""[..], &whole[1..]));
                    let relative = from_start.map(|rest| (rule.to, rest));
                    meaning.renamed = relative.or(whole).or(Some((rule.to, name.given)));
                }
                Kind::Append => meaning.append = true,
                Kind::Fetch => meaning.fetch = true,
                Kind::Compress => meaning.compress = true,
                _ => {}
            }
        }
        meaning
    }
}

/// Puts the absolute name of `given` in `folder` into `room`, without `.`, `..` and doubled slashes; its length. None: it is too long, or there
/// is no folder and it is relative.
#[must_use]
pub fn whole(folder: Option<&[u8]>, given: &[u8], room: &mut [u8; LONGEST + 1]) -> Option<usize> {
    let folder = match given.first() {
        Some(b'/') => &b""[..],
        _ => folder?,
    };
    let mut len = 0;
    let parts = folder.split(|byte| *byte == b'/');
    for part in parts.chain(given.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => {
                let slash = room[..len].iter().rposition(|byte| *byte == b'/');
                len = slash.unwrap_or(0);
            }
            part => {
                room.get_mut(len..len + 1 + part.len())?[1..].copy_from_slice(part);
                room[len] = b'/';
                len += 1 + part.len();
            }
        }
    }
    if len == 0 {
        room[0] = b'/';
        len = 1;
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn rules(all: &[(Kind, &str, &str)]) -> Box<Rules> {
        let mut bytes = [0; RULES_LEN];
        for (kind, from, to) in all {
            let rule = Rule {
                kind: *kind,
                from: from.as_bytes(),
                to: to.as_bytes(),
            };
            assert!(rule.add(&mut bytes));
        }
        Box::new(Rules { bytes })
    }

    fn absolute(folder: &str, given: &str) -> Option<Vec<u8>> {
        let mut room = [0; LONGEST + 1];
        let folder = (!folder.is_empty()).then_some(folder.as_bytes());
        let len = whole(folder, given.as_bytes(), &mut room)?;
        Some(room[..len].to_vec())
    }

    /// What a file is called in the end, and where.
    fn meant(rules: &Rules, folder: &str, given: &str) -> (bool, String) {
        let whole = absolute(folder, given);
        let name = Name {
            given: given.as_bytes(),
            whole: whole.as_deref(),
            start: b"/home/me",
        };
        let meaning = rules.meaning(&name);
        let text = match meaning.renamed {
            Some((to, b"")) => to.to_vec(),
            Some((to, rest)) => [to, b"/", rest].concat(),
            None => given.as_bytes().to_vec(),
        };
        (meaning.here, String::from_utf8(text).expect("text"))
    }

    use alloc::string::String;

    #[test]
    fn absolute_names_have_no_detours() {
        let one = |folder, given| String::from_utf8(absolute(folder, given).expect("fits")).ok();
        assert_eq!(one("/a/b", "c").as_deref(), Some("/a/b/c"));
        assert_eq!(one("/a/b", "../c//./d/").as_deref(), Some("/a/c/d"));
        assert_eq!(one("/a", "/x/../y").as_deref(), Some("/y"));
        assert_eq!(one("/", ".").as_deref(), Some("/"));
        assert_eq!(absolute("", "c"), None);
        assert_eq!(one("/", "../..").as_deref(), Some("/"));
    }

    #[test]
    fn a_remap_is_about_a_name_in_any_folder_a_path_or_a_folder() {
        let rules = rules(&[
            (Kind::Remap, "dataset.1", "/home/me/other"),
            (Kind::Remap, "data", "/big/data"),
            (Kind::RemapHere, "out/log", "/tmp/log"),
            (Kind::Remap, "/etc/conf", "/home/me/conf"),
        ]);
        let there = |folder, given| match meant(&rules, folder, given) {
            (false, name) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(there("/home/me", "dataset.1"), "/home/me/other");
        assert_eq!(there("/x", "sub/dataset.1"), "/home/me/other");
        assert_eq!(there("/x", "dataset.10"), "dataset.10");
        assert_eq!(there("/home/me", "data/a/b"), "/big/data/a/b");
        assert_eq!(there("/home/me", "./data/a"), "/big/data/a");
        assert_eq!(there("/home/me/data", "a"), "/big/data/a");
        assert_eq!(there("/home/me", "data"), "/big/data");
        assert_eq!(there("/x", "database"), "database");
        assert_eq!(there("/", "etc/../etc/conf/x"), "/home/me/conf/x");
        assert_eq!(
            meant(&rules, "/home/me/out", "log"),
            (true, "/tmp/log".into())
        );
    }

    #[test]
    fn local_files_are_of_this_machine() {
        let rules = rules(&[
            (Kind::Here, "/scratch", "/jobs"),
            (Kind::Here, "tmp.dat", "/jobs"),
        ]);
        assert_eq!(
            meant(&rules, "/home/me", "/scratch/a/../b"),
            (true, "/scratch/b".into())
        );
        assert_eq!(meant(&rules, "/scratch", "b"), (true, "/scratch/b".into()));
        for (folder, given) in [("/home/me", "tmp.dat"), ("/home/me/a", "../tmp.dat")] {
            let meant = meant(&rules, folder, given);
            assert_eq!(meant, (true, "/jobs/tmp.dat".into()));
        }
        assert_eq!(
            meant(&rules, "/home/me/a", "tmp.dat"),
            (true, "/jobs/a/tmp.dat".into())
        );
        assert_eq!(
            meant(&rules, "/home/me", "/scratchy"),
            (false, "/scratchy".into())
        );
    }

    #[test]
    fn a_star_is_for_any_bytes() {
        let rules = rules(
            &[
                (Kind::Append, "*.log", ""),
                (Kind::Fetch, "/data/*/set*x", ""),
            ]
            .map(|(kind, from, to)| (kind, from.replace('*', "\0"), to))
            .each_ref()
            .map(|(kind, from, to)| (*kind, from.as_str(), *to)),
        );
        for (given, appends, fetches) in [
            ("a.log", true, false),
            ("/x/.log", true, false),
            ("a.log/b", true, false),
            ("a.logs", false, false),
            ("/data/1/setx", false, true),
            ("/data/1/2/set-3x/y", false, true),
            ("/data/1/set", false, false),
            ("/data/setx", false, false),
            ("/data/1/set.log", true, false),
        ] {
            let absolute = absolute("/home/me", given);
            let name = Name {
                given: given.as_bytes(),
                whole: absolute.as_deref(),
                start: b"/home/me",
            };
            let meaning = rules.meaning(&name);
            assert_eq!(
                (meaning.append, meaning.fetch),
                (appends, fetches),
                "{given}"
            );
        }
    }

    /// The same by trying all.
    fn matches_somehow(name: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((0, rest)) => (0..=name.len()).any(|at| matches_somehow(&name[at..], rest)),
            Some((byte, rest)) => name
                .split_first()
                .is_some_and(|(first, name)| first == byte && matches_somehow(name, rest)),
        }
    }

    #[test]
    fn what_is_said_of_a_file_adds_up() {
        let rules = rules(&[(Kind::Append, "log", ""), (Kind::Fetch, "/home/me", "")]);
        let name = Name {
            given: b"log",
            whole: Some(b"/home/me/log"),
            start: b"/home/me",
        };
        let meaning = rules.meaning(&name);
        assert!(meaning.append && meaning.fetch && !meaning.here);
        assert_eq!(meaning.renamed, None);
    }

    #[test]
    fn too_many_are_refused() {
        let mut bytes = [0; RULES_LEN];
        let rule = Rule {
            kind: Kind::Here,
            from: &[b'x'; 4000],
            to: b"",
        };
        let added = (0..10).take_while(|_| rule.add(&mut bytes)).count();
        assert_eq!(added, 4);
        assert_eq!(Rules { bytes }.all().count(), 4);
    }

    proptest! {
        #[test]
        fn any_bytes_are_rules_or_none(mut noise in proptest::collection::vec(any::<u8>(), 1..200)) {
            noise.resize(RULES_LEN, 0);
            let bytes = noise.try_into().expect("as long");
            let rules = Rules { bytes };
            let name = Name { given: b"a/b", whole: Some(b"/a/b"), start: b"/" };
            let _ = rules.meaning(&name);
        }

        #[test]
        fn stars_are_found_wherever_they_may_be(name in "[ab/]{0,8}", pattern in "[ab/*]{0,6}") {
            let pattern = pattern.replace('*', "\0");
            let (name, pattern) = (name.as_bytes(), pattern.as_bytes());
            prop_assert_eq!(matches(name, pattern), matches_somehow(name, pattern));
        }

        #[test]
        fn an_absolute_name_is_clean(folder in "(/[a-c.]{0,3}){1,4}", given in "[a-c./]{0,12}") {
            if let Some(name) = absolute(&folder, &given) {
                prop_assert_eq!(name[0], b'/');
                let parts: Vec<_> = name[1..].split(|byte| *byte == b'/').collect();
                let clean = parts.iter().all(|part| !matches!(*part, b"" | b"." | b".."));
                prop_assert!(clean || name == b"/");
            }
        }
    }
}
