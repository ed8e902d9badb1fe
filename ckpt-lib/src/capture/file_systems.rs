//! What kind of file system a file lies on, by the number that `statfs(2)` gives: whether its bytes are
//! data that can be read, kept and found again.

use std::os::fd::AsFd;

/// What can be expected of a file system's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSystem {
    /// They hold what was written to them.
    Data,
    /// proc: about processes and the machine, made up when read.
    Proc,
    /// Others that make up what is read: `/sys` and control groups.
    MadeUp,
    /// They are no files at all, or not for us to open again.
    Strange(&'static str),
    /// Not known here.
    Unknown(i64),
}

const HUGETLBFS: i64 = 0x9584_58f6;

/// Numbers from `linux/magic.h` and statfs(2).
const DATA: [i64; 47] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    HUGETLBFS,
    0x794c_7630, // overlayfs
    0x6573_5546, // fuse, virtiofs
    0x6969,      // nfs
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x517b,      // smb
    0x0102_1997, // 9p
    0x2fc1_2fc1, // zfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x00c3_6400, // ceph
    0x0bd0_0bd0, // lustre
    0x4750_4653, // gpfs
    0x1983_0326, // beegfs
    0xaad7_aaea, // panfs
    0x2003_0528, // orangefs, pvfs2
    0x7461_636f, // ocfs2
    0x0116_1970, // gfs2
    0x6b41_4653, // afs
    0x5346_414f, // afs (openafs)
    0x7375_7245, // coda
    0x564c,      // ncp
    0xf15f,      // ecryptfs
    0x6175_6673, // aufs
    0x3153_464a, // jfs
    0x5265_4973, // reiserfs
    0x3434,      // nilfs2
    0x2405_1905, // ubifs
    0x72b6,      // jffs2
    0x5a4f_4653, // zonefs
    0xe0f5_e1e2, // erofs
    0x7371_7368, // squashfs
    0x28cd_3d45, // cramfs
    0x7275,      // romfs
    0x9660,      // iso9660
    0x1501_3346, // udf
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x7366_746e, // ntfs3
    0x5346_544e, // ntfs
    0x786f_4256, // vboxsf
];
const PROC: i64 = 0x9fa0;
/// sysfs, cgroup, cgroup2.
const MADE_UP: [i64; 3] = [0x6265_6572, 0x0027_e0eb, 0x6367_7270];
const STRANGE: [(i64, &str); 25] = [
    (0x6e73_6673, "a name space (nsfs)"),
    (0x5049_4446, "a process (pidfs)"),
    (0x1980_0202, "a POSIX message queue"),
    (0x5345_434d, "secret memory"),
    (0x474d_454d, "memory of a virtual machine (guest_memfd)"),
    (0x444d_4142, "a buffer of a device (dma-buf)"),
    (0x454d_444d, "memory of a device (devmem)"),
    (0xcafe_4a11, "a BPF object (bpffs)"),
    (0x6462_6720, "a file of debugfs"),
    (0x7472_6163, "a file of tracefs"),
    (0x7363_6673, "a file of securityfs"),
    (0x6265_6570, "a file of configfs"),
    (0xde5e_81e4, "a file of efivarfs"),
    (0x6165_676c, "a file of pstore"),
    (0x4249_4e4d, "a file of binfmt_misc"),
    (0xf97c_ff8c, "a file of selinuxfs"),
    (0x4341_5d53, "a file of smackfs"),
    (0x0765_5821, "a file of resctrl"),
    (0x6573_5543, "a file of fusectl"),
    (0xabba_1974, "a file of xenfs"),
    (0x6759_6969, "a file of rpc_pipefs"),
    (0x6e66_7364, "a file of nfsd"),
    (0x6c6f_6f70, "a file of binderfs"),
    (0x9fa2, "a file of usbfs"),
    (0x0904_1934, "an anonymous inode"),
];

/// The file system of an open file.
pub(super) fn of(file: impl AsFd) -> FileSystem {
    match nix::sys::statfs::fstatfs(file) {
        Ok(found) => of_number(found.filesystem_type().0),
        Err(_) => FileSystem::Unknown(0),
    }
}

/// Whether huge pages are behind it.
pub(super) fn is_huge(file: impl AsFd) -> bool {
    nix::sys::statfs::fstatfs(file).is_ok_and(|found| found.filesystem_type().0 == HUGETLBFS)
}

fn of_number(number: i64) -> FileSystem {
    if number == PROC {
        return FileSystem::Proc;
    }
    if MADE_UP.contains(&number) {
        return FileSystem::MadeUp;
    }
    if let Some((_, what)) = STRANGE.iter().find(|(strange, _)| *strange == number) {
        return FileSystem::Strange(what);
    }
    if DATA.contains(&number) {
        return FileSystem::Data;
    }
    FileSystem::Unknown(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn file_systems_are_told_apart() {
        let of_path = |path: &str| of(File::open(path).expect(path));
        assert_eq!(of_path("/proc/self/status"), FileSystem::Proc);
        assert!(
            matches!(of_path("/proc/self/ns/net"), FileSystem::Strange(what) if what.contains("nsfs"))
        );
        assert_eq!(of(tempfile::tempfile().expect("file")), FileSystem::Data);
        assert_eq!(of_number(12_345), FileSystem::Unknown(12_345));
    }

    #[test]
    fn no_number_is_in_two_lists() {
        for (number, what) in STRANGE {
            let twice = number == PROC || MADE_UP.contains(&number) || DATA.contains(&number);
            assert!(!twice, "{what}");
        }
        assert!(!DATA.contains(&PROC));
    }
}
