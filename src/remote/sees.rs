//! What folders of the shadow's machine are called here, by the mount tables of both (proc_pid_mountinfo(5)): Condor's "mount table
//! translation".
//!
//! ```text
//! there: server:/home on /u2      here: server:/home/john on /usr1/john       /u2/john -> /usr1/john
//! there: /export/data (its own)   here: there:/export on /data                /export -> /data
//! ```
//! Only where both are in one domain ([`Sees::as_here`]). A file is compared with what the shadow says of it before it is believed to be the same, so a wrong guess costs time only.

use crate::args::Sight;
use crate::report::{Exit, Failure, Outcome};
use c_shim::rules::{Kind, RULES_LEN, Rule};
use shadow::Domains;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// What a shadow says of the files that it sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sees {
    machine: Vec<u8>,
    file_system: Vec<u8>,
    uid: Vec<u8>,
    mounts: Vec<u8>,
}

impl Sees {
    /// Names with a zero behind each: machine, its domain, [`Domains`]; then its mount table.
    pub(super) fn of(told: &[u8]) -> Self {
        let mut parts = told.splitn(5, |byte| *byte == 0).map(<[u8]>::to_vec);
        let mut part = || parts.next().unwrap_or_default();
        let (machine, _) = (part(), part());
        Sees {
            machine,
            file_system: part(),
            uid: part(),
            mounts: part(),
        }
    }

    /// Whether it is in the domains where the job runs, of which there must be one.
    fn as_here(&self, here: &Domains) -> bool {
        let is_same = |there: &[u8], here: &str| there == here.as_bytes();
        !here.file_system.is_empty()
            && is_same(&self.file_system, &here.file_system)
            && is_same(&self.uid, &here.uid)
    }

    /// What of it is read here.
    pub(super) fn here(&self, sight: &Sight, at_home: bool) -> Outcome<Seen> {
        let given = given(&sight.mounts)?;
        Ok(Seen {
            reads_here: at_home || self.as_here(&sight.domains()),
            mounts: self.translations(&given),
        })
    }

    /// What its folders are called here.
    fn translations(&self, given: &[Renamed]) -> Box<[u8; RULES_LEN]> {
        let system = nix::sys::utsname::uname();
        let name = system.as_ref().map(|system| system.nodename().as_bytes());
        let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let there = Machine {
            name: &self.machine,
            table: &self.mounts,
        };
        let here = Machine {
            name: name.unwrap_or_default(),
            table: &table,
        };
        translations(given, &there, &here)
    }
}

/// What of a shadow's files is read where the job runs.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Anything.
    pub(super) reads_here: bool,
    /// What its folders are called here ([`c_shim::rules::Rules`]).
    pub(super) mounts: Box<[u8; RULES_LEN]>,
}

/// A folder there, and what it is called here.
type Renamed = (Vec<u8>, Vec<u8>);

/// A folder that is mounted somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Where its file system is: a server, or a device of a machine.
    place: Vec<u8>,
    /// What is mounted: its name there.
    folder: Vec<u8>,
    /// Where.
    at: Vec<u8>,
}

/// A machine's mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine<'a> {
    /// What it calls itself.
    name: &'a [u8],
    /// `/proc/self/mountinfo`.
    table: &'a [u8],
}

/// What the shadow's folders are called here, longer names first: `given`, and then what the tables say. Those for which there is no room are left out.
fn translations(
    given: &[Renamed],
    there: &Machine<'_>,
    here: &Machine<'_>,
) -> Box<[u8; RULES_LEN]> {
    let mut found = found(&there.mounts(), &here.mounts());
    found.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
    let mut bytes = Box::new([0; RULES_LEN]);
    for (from, to) in given.iter().chain(&found) {
        let kind = Kind::Remap;
        // `/` is written without its slash, as all folders are.
        let from = from.strip_suffix(b"/").unwrap_or(from);
        let to = to.strip_suffix(b"/").unwrap_or(to);
        let _ = Rule { kind, from, to }.add(&mut bytes);
    }
    bytes
}

fn found(there: &[Mount], here: &[Mount]) -> Vec<Renamed> {
    let mut all = vec![];
    for ours in here {
        for theirs in there.iter().filter(|theirs| theirs.place == ours.place) {
            if let Some(rest) = below(&ours.folder, &theirs.folder) {
                all.push((joined(&theirs.at, rest), ours.at.clone()));
            } else if let Some(rest) = below(&theirs.folder, &ours.folder) {
                all.push((theirs.at.clone(), joined(&ours.at, rest)));
            }
        }
    }
    all
}

/// What follows `folder` in `name`, if that is it or below.
fn below<'n>(name: &'n [u8], folder: &[u8]) -> Option<&'n [u8]> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    match name.strip_prefix(folder)? {
        rest @ ([] | [b'/', ..]) => Some(rest),
        _ => None,
    }
}

fn joined(folder: &[u8], rest: &[u8]) -> Vec<u8> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    [folder, rest.strip_suffix(b"/").unwrap_or(rest)].concat()
}

impl Machine<'_> {
    fn mounts(&self) -> Vec<Mount> {
        let lines = self.table.split(|byte| *byte == b'\n');
        let mut all: Vec<Mount> = lines.filter_map(|line| self.mount(line)).collect();
        // What it has itself others mount by its name.
        all.push(Mount {
            place: host(self.name).to_vec(),
            folder: b"/".to_vec(),
            at: b"/".to_vec(),
        });
        all
    }

    /// id parent major:minor root at options [fields] - type source options
    fn mount(&self, line: &[u8]) -> Option<Mount> {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [_, _, device, root, at, ..] = words[..] else {
            return None;
        };
        let dash = words.iter().position(|word| *word == b"-")?;
        let source = unescaped(words.get(dash + 2)?);
        let (root, at) = (unescaped(root), unescaped(at));
        let colon = source.iter().position(|byte| *byte == b':');
        let (place, folder) = match colon {
            Some(colon) if source.get(colon + 1) == Some(&b'/') => {
                let folder = joined(&source[colon + 1..], &root);
                (host(&source[..colon]).to_vec(), folder)
            }
            _ if source.starts_with(b"//") => (source, root),
            _ => ([self.name, b" ", device].concat(), root),
        };
        Some(Mount { place, folder, at })
    }
}

/// A host without its domain.
fn host(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|byte| *byte == b'.');
    &name[..end.unwrap_or(name.len())]
}

/// `\040` is a blank.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut left = word;
    let mut all = vec![];
    while let Some((first, rest)) = left.split_first() {
        let digits = rest.first_chunk::<3>().filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                all.push(byte);
                left = &rest[3..];
            }
            None => {
                all.push(*first);
                left = rest;
            }
        }
    }
    all
}

/// What `--mounts` says: `THERE=HERE;...`, absolute names.
fn given(lists: &[OsString]) -> Outcome<Vec<Renamed>> {
    let all = lists
        .iter()
        .flat_map(|list| list.as_bytes().split(|byte| *byte == b';'));
    let pairs = all.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=');
            let parts = equals.map(|at| (pair[..at].to_vec(), pair[at + 1..].to_vec()));
            let is_absolute = |name: &Vec<u8>| name.first() == Some(&b'/');
            parts
                .filter(|(from, to)| is_absolute(from) && is_absolute(to))
                .ok_or_else(|| {
                    let shown = String::from_utf8_lossy(pair);
                    let message =
                        format!("--mounts: found `{shown}`, expected /FOLDER/THERE=/FOLDER/HERE");
                    Failure::new(Exit::Usage, message)
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(there: &str, here: &str) -> Vec<(String, String)> {
        let machine = |name: &'static str, table| Machine {
            name: name.as_bytes(),
            table,
        };
        let there = machine("home.example", there.as_bytes()).mounts();
        let here = machine("worker7", here.as_bytes()).mounts();
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let all = found(&there, &here).into_iter();
        all.map(|(from, to)| (text(from), text(to))).collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn what_both_mount_from_a_server_is_found() {
        let there = "30 1 0:40 / /u2 rw shared:1 - nfs4 files.example:/home rw,vers=4.2\n\
                     31 1 0:41 / /proc rw - proc proc rw\n";
        let here = "50 1 0:77 / /usr1/john\\040b rw - nfs4 files:/home/john rw\n\
                    51 1 0:78 / /all rw - nfs files.other:/ rw\n\
                    52 1 0:41 / /proc rw - proc proc rw\n";
        let expected = [pair("/u2/john", "/usr1/john b"), pair("/u2", "/all/home")];
        assert_eq!(said(there, here), expected);
    }

    #[test]
    fn what_a_machine_has_itself_is_mounted_by_its_name() {
        let there = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let here = "50 1 0:77 / /data rw - nfs4 home:/export/data rw\n\
                    20 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        assert_eq!(said(there, here), [pair("/export/data", "/data")]);
    }

    #[test]
    fn on_one_machine_devices_tell() {
        let machine = |table| Machine {
            name: b"one",
            table,
        };
        let there = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n".as_slice();
        let here = b"60 1 8:1 /home/me /u2 rw - ext4 /dev/sda1 rw\n".as_slice();
        let found = found(&machine(there).mounts(), &machine(here).mounts());
        assert!(
            found.contains(&(b"/home/me".to_vec(), b"/u2".to_vec())),
            "{found:?}"
        );
    }

    #[test]
    fn names_that_are_given_come_first_and_longer_ones_before_shorter() {
        let there = Machine {
            name: b"home",
            table:
                b"30 1 0:40 / /u2 rw - nfs4 f:/home rw\n31 1 0:41 / /u2/deep rw - nfs4 f:/deep rw\n",
        };
        let here = Machine {
            name: b"worker",
            table: b"50 1 0:77 / /h rw - nfs4 f:/home rw\n51 1 0:78 / /d rw - nfs4 f:/deep rw\n",
        };
        let given = given(&["/a=/b; /=/there".into()]).expect("pairs");
        let bytes = translations(&given, &there, &here);
        let mut left = &bytes[..];
        for name in ["/a", "/b", "/there", "/u2/deep", "/d", "/u2", "/h"] {
            let found = left
                .windows(name.len())
                .position(|found| found == name.as_bytes());
            left = &left
                [found.unwrap_or_else(|| panic!("{name} is not there, or earlier")) + name.len()..];
        }
    }

    #[test]
    fn domains_must_be_the_same_and_one_must_be_said() {
        let domains = |file_system: &str, uid: &str| Domains {
            file_system: file_system.to_owned(),
            uid: uid.to_owned(),
        };
        let sees = Sees::of(b"home\0(none)\0cs\0wisc\x0020 1 0:1 / / rw - a b c\n");
        assert_eq!(sees.mounts, b"20 1 0:1 / / rw - a b c\n");
        assert!(sees.as_here(&domains("cs", "wisc")));
        assert!(!sees.as_here(&domains("cs", "")));
        assert!(!sees.as_here(&domains("ee", "wisc")));
        for silent in [Sees::default(), Sees::of(b"home\0(none)\0")] {
            assert!(!silent.as_here(&domains("", "")));
            assert!(!silent.as_here(&domains("cs", "")));
        }
    }

    #[test]
    fn what_is_no_pair_is_named() {
        for wrong in ["/a", "a=/b", "/a=b", "=/b"] {
            let failure = self::given(&[wrong.into()]).expect_err("no pair");
            assert!(failure.to_string().contains(wrong), "{failure}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_tables(there in "[a-z/: \\\\0-9-]{0,80}", here in "[a-z/: \\\\0-9\n-]{0,80}") {
            let _ = said(&there, &here);
        }
    }
}
