//! Small images made by hand, and a way to execute them with a deadline.

use ckpt_lib::image::{Bytes, Image, ImageParts, ImageWriter, WriteOptions};
use ckpt_lib::loader_code;
use ckpt_lib::plan::{Arg, OpsBuilder, StreamIndex};
use ckpt_lib::snapshot::SnapshotV1;
use loader::hole::hole_needed;
use loader::layout::Space;
use loader::ops::{
    Exec, Expect, Fill, FillInode, OpsHeader, Registers, StreamKind, UnmapAll, flags,
};
use loader::xstate::Xstate;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Where the holes of these images are.
pub(crate) const HOLE: u64 = 0x10_0000_0000;

/// Memory that a restored process gets from the image: address and bytes.
pub(crate) type Contents = Vec<(u64, Vec<u8>)>;

/// An image file in a directory of its own.
pub(crate) struct TestImage {
    pub(crate) path: PathBuf,
    _dir: tempfile::TempDir,
}

/// Writes an image with these operations and contents of process 0.
pub(crate) fn image_at(hole: u64, ops: OpsBuilder, contents: &Contents) -> TestImage {
    image_with(hole, ops, |writer| store(writer, contents))
}

/// Writes an image with these operations and whatever `fill` stores.
pub(crate) fn image_with(
    hole: u64,
    ops: OpsBuilder,
    fill: impl FnOnce(&mut ImageWriter),
) -> TestImage {
    let dir = tempfile::tempdir().expect("directory");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), everybody).expect("permissions");
    let path = dir.path().join("test.img");
    write_image_with(&path, hole, ops, fill);
    TestImage { path, _dir: dir }
}

/// Stores contents of process 0.
pub(crate) fn store(writer: &mut ImageWriter, contents: &Contents) {
    for (at, bytes) in contents {
        let source = Shifted { at: *at, bytes };
        let range = *at..*at + bytes.len() as u64;
        writer
            .store(Space::Process(0), &[range], &source, &|_| {})
            .expect("stored");
    }
}

pub(crate) fn write_image_with(
    path: &Path,
    hole: u64,
    mut ops: OpsBuilder,
    fill: impl FnOnce(&mut ImageWriter),
) {
    let options = WriteOptions {
        compression: COMPRESSION.with(std::cell::Cell::get),
        ..WriteOptions::default()
    };
    let mut writer = ImageWriter::create(path, options).expect("created");
    fill(&mut writer);
    let span = loader_code::span().expect("span");
    let slots = ops.header_mut().slot_count;
    let ops = ops.finish().expect("finishes");
    let needed = hole_needed(span, ops.size(), writer.extents_len(), 512, slots);
    let loader = loader_code::link(hole).expect("linked");
    let meta = Image::encode_snapshot(&SnapshotV1::default()).expect("encodes");
    let platform = PLATFORM.with(std::cell::Cell::get);
    let parts = ImageParts {
        platform,
        ops: Bytes::from(&ops),
        meta: Bytes::from(&meta[..]),
        loader: &loader,
        hole: hole..hole + needed.next_multiple_of(2 << 20),
    };
    writer.commit(&parts).expect("committed");
}

std::thread_local! {
    /// zstd level of the images this thread writes.
    pub(crate) static COMPRESSION: std::cell::Cell<Option<i32>> = const { std::cell::Cell::new(None) };
    /// What the images that this thread writes need of a machine.
    pub(crate) static PLATFORM: std::cell::Cell<&'static str> =
        const { std::cell::Cell::new("LINUX X86_64 v1 xsave=0x3 page=4096 va=47") };
}

struct Shifted<'a> {
    at: u64,
    bytes: &'a [u8],
}

impl ckpt_lib::image::ByteSource for Shifted<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let from = (at - self.at) as usize;
        buf.copy_from_slice(&self.bytes[from..from + buf.len()]);
        Ok(())
    }
}

/// An image that starts a program, as `wayfarer run` makes it.
pub(crate) fn run_image(program: &[&str]) -> TestImage {
    let header = OpsHeader {
        flags: flags::RUN,
        slot_base: 100,
        slot_count: 0,
        // The loader maps these to whoever starts it.
        uid: 1000,
        gid: 1000,
        ..OpsHeader::default()
    };
    let mut ops = OpsBuilder::new(header);
    let process = ops.stream(StreamKind::Process, 0, StreamIndex(0));
    let mut tail = vec![];
    for text in std::iter::once(&program[0]).chain(program) {
        tail.extend(text.as_bytes());
        tail.push(0);
    }
    tail.extend(b"PATH=/usr/bin:/bin\0");
    let exec = Exec {
        args: program.len() as u64,
        envs: 1,
        limits: 0,
    };
    ops.push(process, &exec, &tail);
    image_at(HOLE, ops, &vec![])
}

/// A process to be brought back: its code page, a stack page, and registers per thread.
pub(crate) struct Tiny {
    pub(crate) ops: OpsBuilder,
    pub(crate) process: StreamIndex,
    pub(crate) contents: Contents,
    /// What lay unread in pipes and sockets.
    pub(crate) unread: Vec<u8>,
}

pub(crate) const CODE: u64 = 0x40_0000;
pub(crate) const STACK: u64 = 0x50_0000;
pub(crate) const PID: u64 = 4242;

/// Where `SpawnThreads` and everything after it belongs: the caller goes on from here.
pub(crate) fn tiny(code: &[u8]) -> Tiny {
    let header = OpsHeader {
        slot_base: 200,
        slot_count: 4,
        uid: 1000,
        gid: 1000,
        flags: flags::IDS_MUST_MATCH,
        ..OpsHeader::default()
    };
    let mut ops = OpsBuilder::new(header);
    let process = ops.stream(StreamKind::Process, PID, StreamIndex(0));
    ops.push(process, &UnmapAll::default(), &[]);
    map(&mut ops, process, CODE, 4096, 7);
    map(&mut ops, process, STACK, 8192, 3);
    ops.push(process, &Fill { process: 0 }, &[]);
    let mut page = code.to_vec();
    page.resize(4096, 0xcc);
    Tiny {
        ops,
        process,
        contents: vec![(CODE, page)],
        unread: vec![],
    }
}

/// A private anonymous mapping at a fixed place.
pub(crate) fn map(ops: &mut OpsBuilder, stream: StreamIndex, at: u64, len: u64, prot: u64) {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
    let args = [at, len, prot, flags, u64::MAX, 0].map(Arg::Value);
    let label = format!("mapping {at:x}");
    ops.call(stream, &label, libc::SYS_mmap, &args, Expect::Exactly, at);
}

impl Tiny {
    /// Adds a thread that goes on at `rip`.
    pub(crate) fn thread(&mut self, tid: u64, rip: u64, rsp: u64) -> StreamIndex {
        let stream = self.ops.stream(StreamKind::Thread, tid, self.process);
        self.registers(stream, rip, rsp, |_| {});
        stream
    }

    pub(crate) fn registers(
        &mut self,
        stream: StreamIndex,
        rip: u64,
        rsp: u64,
        change: impl FnOnce(&mut Registers),
    ) {
        let mut registers = Registers {
            rip,
            rsp,
            cs: 0x33,
            ss: 0x2b,
            eflags: 0x202,
            orig_rax: u64::MAX,
            ..Registers::default()
        };
        change(&mut registers);
        // Nothing in use: every component is as a thread begins with it.
        let mut xstate = [0; Xstate::LEAST];
        xstate[24..28].copy_from_slice(&0x1f80u32.to_le_bytes()); // MXCSR
        self.ops.push(stream, &registers, &xstate);
    }

    /// Adds a file in this slot that has what lay unread.
    pub(crate) fn unread(&mut self, slot: u64, bytes: Vec<u8>) {
        let prepare = StreamIndex(0);
        let args = [Arg::Bytes(b"unread\0".to_vec()), Arg::Value(0)];
        let nr = libc::SYS_memfd_create;
        let ops = &mut self.ops;
        ops.call(prepare, "unread", nr, &args, Expect::Slot, slot);
        let fill = FillInode {
            slot,
            inode: 0,
            size: bytes.len() as u64,
        };
        ops.push(prepare, &fill, &[]);
        self.unread = bytes;
    }

    pub(crate) fn image(self) -> TestImage {
        let unread = &self.unread;
        image_with(HOLE, self.ops, |writer| {
            store(writer, &self.contents);
            let source = Shifted {
                at: 0,
                bytes: unread,
            };
            let range = 0..unread.len() as u64;
            if !unread.is_empty() {
                let stored = writer.store(Space::Inode(0), &[range], &source, &|_| {});
                stored.expect("stored");
            }
        })
    }
}

/// What became of an execution.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Executes an image.
pub(crate) fn execute(image: &TestImage, options: &[&str]) -> Ended {
    let mut command = Command::new(&image.path);
    command.args(options);
    finish(command)
}

/// Executes an image as an ordinary user, if we are root and there is one.
pub(crate) fn execute_as_user(image: &TestImage, options: &[&str]) -> Option<Ended> {
    #[allow(
        clippy::disallowed_methods,
        reason = "test programs are linked dynamically"
    )]
    let uid = nix::unistd::User::from_name("wftest").ok()??;
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    nix::unistd::chown(&image.path, Some(uid.uid), Some(uid.gid)).expect("chown");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "wftest", "--regid", "wftest", "--init-groups"]);
    command.arg(&image.path).args(options);
    Some(finish(command))
}

/// Starts a command that executes an image.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match command.spawn() {
            // A child that another test is just starting holds the image open for writing.
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < deadline => {}
            started => return started.expect("started"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a command to its end, at most 20 seconds.
pub(crate) fn finish(mut command: Command) -> Ended {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command);
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().expect("waited") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("killed");
            panic!("still running after 20 s");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut stdout = String::new();
    let mut stderr = String::new();
    let mut pipe = child.stdout.take().expect("stdout");
    pipe.read_to_string(&mut stdout).expect("read");
    let mut pipe = child.stderr.take().expect("stderr");
    pipe.read_to_string(&mut stderr).expect("read");
    Ended {
        status,
        stdout,
        stderr,
    }
}
