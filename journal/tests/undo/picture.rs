//! A picture of a tree: all that an undo has to bring back.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How one name looks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    /// With the kind.
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// Seconds, nanoseconds.
    pub(crate) modified: (i64, i64),
    /// Bytes of a file, target of a link.
    pub(crate) contents: Vec<u8>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name of the same inode.
    pub(crate) first_name: PathBuf,
}

/// All names of a tree, that of its root empty.
pub(crate) type Picture = BTreeMap<PathBuf, Entry>;

pub(crate) fn take(root: &Path) -> Picture {
    let mut picture = Picture::new();
    let mut inodes = HashMap::new();
    add(root, &PathBuf::new(), &mut inodes, &mut picture);
    picture
}

fn add(root: &Path, name: &Path, inodes: &mut HashMap<(u64, u64), PathBuf>, picture: &mut Picture) {
    let path = if name.as_os_str().is_empty() {
        root.to_owned()
    } else {
        root.join(name)
    };
    let metadata = fs::symlink_metadata(&path).expect("is there");
    let kind = metadata.file_type();
    let contents = if kind.is_file() {
        fs::read(&path).expect("reads")
    } else if kind.is_symlink() {
        fs::read_link(&path)
            .expect("reads")
            .as_os_str()
            .as_bytes()
            .to_vec()
    } else {
        assert!(kind.is_dir() || kind.is_fifo(), "{}", path.display());
        vec![]
    };
    let inode = (metadata.dev(), metadata.ino());
    let first_name = inodes
        .entry(inode)
        .or_insert_with(|| name.to_owned())
        .clone();
    let entry = Entry {
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        contents,
        xattrs: xattrs(&path),
        first_name,
    };
    picture.insert(name.to_owned(), entry);
    if kind.is_dir() {
        let mut names: Vec<PathBuf> = fs::read_dir(&path)
            .expect("reads")
            .map(|entry| name.join(entry.expect("reads").file_name()))
            .collect();
        names.sort();
        for name in names {
            add(root, &name, inodes, picture);
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."));
    names
        .map(|name| {
            let mut value = vec![0; 4096];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("reads");
            (name.to_vec(), value[..len].to_vec())
        })
        .collect()
}

/// Fails with what differs, and not with all of it.
pub(crate) fn assert_same(now: &Picture, then: &Picture, what: &str) {
    if let Err(difference) = compare(now, then) {
        panic!("{what}: {difference}");
    }
}

pub(crate) fn compare(now: &Picture, then: &Picture) -> Result<(), String> {
    let names = now.keys().chain(then.keys());
    for name in names {
        let (is, was) = (now.get(name), then.get(name));
        if is == was {
            continue;
        }
        let short = |entry: Option<&Entry>| match entry {
            None => "nothing".to_owned(),
            Some(entry) => {
                let start = &entry.contents[..entry.contents.len().min(16)];
                let (len, mode) = (entry.contents.len(), entry.mode);
                let (time, first) = (entry.modified, &entry.first_name);
                let xattrs = &entry.xattrs;
                format!("{mode:o} {len} bytes {start:?} {time:?} {first:?} {xattrs:?}")
            }
        };
        let (is, was) = (short(is), short(was));
        return Err(format!("{name:?}\n is  {is}\n was {was}"));
    }
    Ok(())
}
