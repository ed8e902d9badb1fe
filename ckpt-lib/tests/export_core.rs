//! A core made of a snapshot shows gdb every thread where it was.
//!
//! The snapshot is taken here by hand, with ptrace and /proc, of a program with three threads in
//! known functions; its program file and libraries are carried as inodes, and only the pages that
//! differ from them belong to the process.
#![allow(unsafe_code, clippy::unwrap_used)]

#[path = "../../tests/support/skip.rs"]
mod skip;

use ckpt_lib::export::{Contents, ContentsError, core};
use ckpt_lib::snapshot::{
    AddressSpace, ContentCheck, InodeId, InodeKind, InodeRecord, KernelPath, Mapping, MappingKind,
    Process, Registers, SnapshotV1, Thread,
};
use loader::layout::Space;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PAGE: usize = 4096;

struct Taken {
    snapshot: SnapshotV1,
    pages: BTreeMap<u64, Vec<u8>>,
    files: Vec<Vec<u8>>,
}

impl Contents for Taken {
    fn snapshot(&self) -> &SnapshotV1 {
        &self.snapshot
    }

    fn ranges(&self, space: Space) -> Result<Vec<Range<u64>>, ContentsError> {
        Ok(match space {
            Space::Process(_) => {
                let pages = self.pages.keys();
                pages.map(|at| *at..*at + PAGE as u64).collect()
            }
            Space::Inode(index) => {
                let whole = 0..self.files[index as usize].len() as u64;
                std::iter::once(whole).collect()
            }
        })
    }

    fn read(&self, space: Space, at: u64, buf: &mut [u8]) -> Result<(), ContentsError> {
        for (offset, byte) in buf.iter_mut().enumerate() {
            let place = at + offset as u64;
            *byte = match space {
                Space::Process(_) => {
                    let page = self.pages.get(&(place & !0xfff));
                    page.map_or(0, |page| page[place as usize & 0xfff])
                }
                Space::Inode(index) => {
                    let file = &self.files[index as usize];
                    file.get(place as usize).copied().unwrap_or(0)
                }
            };
        }
        Ok(())
    }
}

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(directory: &Path) -> (Guest, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/three_threads.c");
    let program = directory.join("three_threads");
    let compiled = Command::new("cc")
        .args(["-g", "-O0", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(compiled.expect("cc").success());
    let mut child = Command::new(&program)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let output = child.stdout.take().expect("pipe");
    let guest = Guest(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("ready");
    assert_eq!(line, "ready\n");
    (guest, program)
}

fn ptrace(request: i64, tid: i32, addr: u64, data: u64) -> i64 {
    // SAFETY: the callers pass buffers as large as the request needs.
    unsafe { libc::syscall(libc::SYS_ptrace, request, tid, addr, data) }
}

fn registers(tid: i32) -> Registers {
    let mut r = [0u64; 27];
    let got = ptrace(libc::PTRACE_GETREGS.into(), tid, 0, r.as_mut_ptr() as u64);
    assert_eq!(got, 0);
    let [
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    ] = r;
    #[rustfmt::skip]
    let registers = Registers {
        r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs,
        eflags, rsp, ss, fs_base, gs_base, ds, es, fs, gs,
    };
    registers
}

fn xstate(tid: i32) -> Vec<u8> {
    let mut bytes = vec![0u8; 16384];
    let mut iov = [bytes.as_mut_ptr() as u64, bytes.len() as u64];
    let set = libc::PTRACE_GETREGSET.into();
    let got = ptrace(set, tid, 0x202, iov.as_mut_ptr() as u64);
    assert_eq!(got, 0);
    bytes.truncate(iov[1] as usize);
    bytes
}

fn take(guest: &Guest) -> Taken {
    let pid = guest.0.id();
    let mut tids: Vec<i32> = fs::read_dir(format!("/proc/{pid}/task"))
        .expect("task")
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    tids.sort_unstable();
    let mut threads = vec![];
    for &tid in &tids {
        assert_eq!(ptrace(libc::PTRACE_SEIZE.into(), tid, 0, 0), 0);
        assert_eq!(ptrace(libc::PTRACE_INTERRUPT.into(), tid, 0, 0), 0);
        let mut status = 0;
        // SAFETY: status is an int.
        let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
        assert!(found == tid && libc::WIFSTOPPED(status));
        threads.push(Thread {
            tid: tid as u32,
            name: KernelPath(b"three_threads".to_vec()),
            registers: registers(tid),
            xstate: xstate(tid),
            ..Thread::default()
        });
    }
    let mut taken = Taken {
        snapshot: SnapshotV1::default(),
        pages: BTreeMap::new(),
        files: vec![],
    };
    let memory = File::open(format!("/proc/{pid}/mem")).expect("mem");
    let mut mappings = vec![];
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))
        .unwrap()
        .lines()
    {
        mappings.extend(mapping(line, &memory, &mut taken));
    }
    taken.snapshot.processes = vec![Process {
        pid,
        threads,
        memory: AddressSpace {
            mappings,
            auxv: fs::read(format!("/proc/{pid}/auxv")).unwrap(),
            ..AddressSpace::default()
        },
        ..Process::default()
    }];
    // A thread that is still traced would have to be reaped by us before its process can be.
    for tid in tids {
        assert_eq!(ptrace(libc::PTRACE_DETACH.into(), tid, 0, 0), 0);
    }
    taken
}

fn mapping(line: &str, memory: &File, taken: &mut Taken) -> Option<Mapping> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (start, end) = fields[0].split_once('-').unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let (start, end, offset) = (hex(start), hex(end), hex(fields[2]));
    let name = fields.get(5).copied().unwrap_or("");
    let bit = |letter: char, bit: u32| if fields[1].contains(letter) { bit } else { 0 };
    let prot = bit('r', 1) | bit('w', 2) | bit('x', 4);
    let kind = match name {
        "[vsyscall]" => return None,
        "[vvar]" => MappingKind::Vvar,
        "[vvar_vclock]" => MappingKind::VvarVclock,
        "[vdso]" => MappingKind::Vdso,
        path if path.starts_with('/') => {
            let inode = carry(path, taken);
            MappingKind::PrivateFile { inode, offset }
        }
        _ => MappingKind::Anonymous { huge_shift: 0 },
    };
    for at in (start..end).step_by(PAGE) {
        let mut page = vec![0; PAGE];
        if memory.read_exact_at(&mut page, at).is_err() {
            continue;
        }
        let mut from_file = vec![0; PAGE];
        if let MappingKind::PrivateFile { inode, .. } = kind {
            let in_file = offset + at - start;
            taken
                .read(Space::Inode(inode.0), in_file, &mut from_file)
                .unwrap();
        }
        if page != from_file {
            taken.pages.insert(at, page);
        }
    }
    Some(Mapping {
        start,
        end,
        prot,
        kind,
        flags: 0,
        pkey: 0,
        name: KernelPath::default(),
    })
}

fn carry(path: &str, taken: &mut Taken) -> InodeId {
    let inodes = &mut taken.snapshot.inodes;
    let known = inodes
        .iter()
        .position(|inode| inode.path.0 == path.as_bytes());
    let index = known.unwrap_or_else(|| {
        taken.files.push(fs::read(path).unwrap());
        inodes.push(InodeRecord {
            kind: InodeKind::Regular,
            path: path.as_bytes().into(),
            size: taken.files.last().unwrap().len() as u64,
            mode: 0o100755,
            dev: 0,
            ino: 0,
            rdev: 0,
            mtime_ns: 0,
            check: ContentCheck::None,
            carried: true,
            written: false,
        });
        inodes.len() - 1
    });
    InodeId(index as u32)
}

fn gdb(program: &Path, core: &Path, commands: &[&str]) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let output = gdb.arg(program).arg(core).output().expect("gdb");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn gdb_shows_every_thread_where_it_was() {
    if Command::new("gdb").arg("--version").output().is_err() {
        return skip::note(
            "gdb_shows_every_thread_where_it_was",
            "no gdb on this machine",
        );
    }
    let directory = tempfile::tempdir().expect("directory");
    let (guest, program) = start(directory.path());
    let taken = take(&guest);
    let out = directory.path().join("core");
    core(&taken, None, &out).expect("core");
    drop(guest);

    let commands = [
        "thread apply all bt",
        "print turns",
        "print kept",
        "info registers rip",
    ];
    let shown = gdb(&program, &out, &commands);
    for text in [
        "wait_for_input (depth=0)",
        "wait_for_input (depth=2)",
        "spin_around (count=0x",
        "spinner (count=0x",
        "sleep_long (seconds=1000)",
        "sleeper (unused=0x0)",
        "main () at",
        "= 4711",
        "= 3",
    ] {
        assert!(shown.contains(text), "no {text:?} in:\n{shown}");
    }
    assert_eq!(shown.matches("\nThread ").count(), 3, "{shown}");
    assert!(!shown.contains("Cannot access memory"), "{shown}");
    let mode = fs::metadata(&out).expect("core").permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
}
