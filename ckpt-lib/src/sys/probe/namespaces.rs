//! What an ordinary user may do with namespaces, tried in a child.
//!
//! ```text
//! child: unshare(user) -> uid_map -> unshare(time) -> timens_offsets -> unshare(mount) -> unshare(pid)
//!   `- grandchild, pid 1: mounts /proc, clone3(set_tid)
//! ```
#![allow(unsafe_code)]

use super::programs::{Layout, layout_of_self, set_layout};
use super::{Outcome, Sheet, call, exit, in_child, plain};

/// Outcomes of [`namespaces`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespaces {
    pub(crate) user: Outcome,
    pub(crate) uid_map: Outcome,
    pub(crate) gid_map: Outcome,
    pub(crate) time: Outcome,
    pub(crate) clock_offsets: Outcome,
    pub(crate) mount: Outcome,
    pub(crate) pid: Outcome,
    pub(crate) proc_mount: Outcome,
    pub(crate) set_tid: Outcome,
    pub(crate) program_file: Outcome,
}

/// The id that is asked for; in a new pid namespace it is free.
const ASKED_ID: i32 = 217;
const CLONE3_ARGS_LEN: u64 = 80;

/// Tries all of it, in one child and its children.
pub(crate) fn namespaces() -> Namespaces {
    let uid = nix::unistd::getuid().as_raw();
    let gid = nix::unistd::getgid().as_raw();
    let (uid_line, gid_line) = (format!("{uid} {uid} 1\n"), format!("{gid} {gid} 1\n"));
    let layout = layout_of_self();
    let (uid_line, gid_line) = (uid_line.as_bytes(), gid_line.as_bytes());
    let tried = in_child(|sheet| try_all(sheet, uid_line, gid_line, layout.as_ref()));
    let at = |slot| {
        tried
            .as_ref()
            .map_or(Outcome::Untried, |(sheet, _)| sheet.outcome(slot))
    };
    Namespaces {
        user: at(0),
        uid_map: at(1),
        gid_map: at(2),
        time: at(3),
        clock_offsets: at(4),
        mount: at(5),
        pid: at(6),
        proc_mount: at(7),
        set_tid: at(8),
        program_file: at(9),
    }
}

fn try_all(sheet: &Sheet, uid_line: &[u8], gid_line: &[u8], layout: Option<&Layout>) {
    let unshare = |flag: i32| plain(libc::SYS_unshare, [flag as u64, 0, 0, 0, 0, 0]);
    let user = unshare(libc::CLONE_NEWUSER);
    sheet.note(0, &user);
    if user.is_err() {
        return;
    }
    sheet.note(1, &write_file(c"/proc/self/uid_map", uid_line));
    let _ = write_file(c"/proc/self/setgroups", b"deny");
    sheet.note(2, &write_file(c"/proc/self/gid_map", gid_line));
    let time = unshare(libc::CLONE_NEWTIME);
    sheet.note(3, &time);
    if time.is_ok() {
        let offsets = write_file(c"/proc/self/timens_offsets", b"monotonic 1 0\n");
        sheet.note(4, &offsets);
    }
    sheet.note(5, &unshare(libc::CLONE_NEWNS));
    let pid = unshare(libc::CLONE_NEWPID);
    sheet.note(6, &pid);
    if pid.is_err() {
        return;
    }
    // SAFETY: the child makes system calls only and leaves by _exit.
    let grandchild = unsafe { libc::fork() };
    if grandchild == 0 {
        as_first_process(sheet, layout);
        exit();
    }
    if grandchild > 0 {
        // The grandchild is pid 1 of its namespace, and is killed with this process if it hangs.
        let mut status = 0i32;
        let wait = [
            grandchild as u64,
            &raw mut status as u64,
            libc::__WALL as u64,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel writes an int.
        let _ = unsafe { call(libc::SYS_wait4, wait) };
    }
}

fn as_first_process(sheet: &Sheet, layout: Option<&Layout>) {
    let kill = libc::SIGKILL as u64;
    let _ = plain(
        libc::SYS_prctl,
        [libc::PR_SET_PDEATHSIG as u64, kill, 0, 0, 0, 0],
    );
    let private = [
        0,
        c"/".as_ptr() as u64,
        0,
        libc::MS_REC | libc::MS_PRIVATE,
        0,
        0,
    ];
    // SAFETY: the kernel reads C strings.
    let _ = unsafe { call(libc::SYS_mount, private) };
    let proc = c"proc".as_ptr() as u64;
    let mount = [proc, c"/proc".as_ptr() as u64, proc, 0, 0, 0];
    // SAFETY: the kernel reads C strings.
    sheet.note(7, &unsafe { call(libc::SYS_mount, mount) });
    if let Some(layout) = layout {
        try_program_file(sheet, layout);
    }

    let asked = ASKED_ID;
    let mut args = [0u64; 10]; // struct clone_args
    args[4] = libc::SIGCHLD as u64;
    args[8] = &raw const asked as u64;
    args[9] = 1;
    let clone = [&raw const args as u64, CLONE3_ARGS_LEN, 0, 0, 0, 0];
    // SAFETY: the kernel reads the argument struct and one pid; like fork, the child gets a copy of
    // the memory and leaves at once.
    let made = unsafe { call(libc::SYS_clone3, clone) };
    match made {
        Ok(0) => exit(),
        Ok(pid) if pid == ASKED_ID as u64 => sheet.put(8, 0),
        Ok(_) => {}
        Err(errno) => sheet.put(8, errno),
    }
}

/// `PR_SET_MM_MAP` with a program file: EBUSY means that only the old program's mappings are in
/// the way.
fn try_program_file(sheet: &Sheet, layout: &Layout) {
    let open = [
        libc::AT_FDCWD as u64,
        c"/proc/self/exe".as_ptr() as u64,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads a C string.
    let Ok(exe) = (unsafe { call(libc::SYS_openat, open) }) else {
        return;
    };
    match set_layout(layout, exe as u32) {
        Err(libc::EBUSY) => sheet.put(9, 0),
        result => sheet.note(9, &result),
    }
}

fn write_file(path: &std::ffi::CStr, bytes: &[u8]) -> Result<u64, i32> {
    let open = [
        libc::AT_FDCWD as u64,
        path.as_ptr() as u64,
        libc::O_WRONLY as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads a C string.
    let file = unsafe { call(libc::SYS_openat, open) }?;
    let write = [file, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0];
    // SAFETY: the kernel reads the slice.
    let written = unsafe { call(libc::SYS_write, write) };
    let _ = plain(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_namespaces_leaves_the_caller_in_its_own() {
        let before = std::fs::read_link("/proc/self/ns/user").expect("ns");
        let found = namespaces();
        assert_eq!(
            std::fs::read_link("/proc/self/ns/user").expect("ns"),
            before
        );
        assert_ne!(found.user, Outcome::Untried);
        if found.pid.works() {
            assert_ne!(found.set_tid, Outcome::Untried);
        }
    }
}
