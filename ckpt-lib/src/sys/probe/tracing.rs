//! What may be done to another process of this user: a child of our own stands in for the job.
//!
//! ```text
//! parent                               child
//! waits for "ready"                    maps a page, makes a userfaultfd, says ready, sleeps
//! reads /proc/CHILD, pidfd, kcmp ...
//! PTRACE_SEIZE, INTERRUPT, asks, detaches; kills it
//! ```
#![allow(unsafe_code)]

use super::{Child, Outcome, Sheet, call, plain};
use crate::sys::userfaultfd;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Outcomes of [`tracing`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracing {
    pub(crate) attach: Outcome,
    pub(crate) rseq_configuration: Outcome,
    pub(crate) syscall_dispatch_configuration: Outcome,
    pub(crate) pidfd_getfd: Outcome,
    pub(crate) kcmp: Outcome,
    pub(crate) process_vm_readv: Outcome,
    pub(crate) process_madvise: Outcome,
    pub(crate) userfaultfd: Outcome,
    pub(crate) write_protect_async: Outcome,
    pub(crate) pagemap_scan: Outcome,
    pub(crate) soft_dirty: Outcome,
    pub(crate) sched_file: Outcome,
    pub(crate) wchan: Outcome,
    pub(crate) map_files: Outcome,
}

const READY: usize = 0;
const UFFD: usize = 1;
const UFFD_ERROR: usize = 2;

const PAGE: u64 = 4096;
const PAGES: u64 = 4;
const DEADLINE: Duration = Duration::from_secs(10);

const PAGEMAP_SCAN: u64 = 0xc060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1;
const PM_SCAN_CHECK_WPASYNC: u64 = 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PTRACE_GET_RSEQ_CONFIGURATION: u64 = 0x420f;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: u64 = 0x4211;
const KCMP_FILE: u64 = 0;
const SOFT_DIRTY: u64 = 1 << 55;

/// Makes a child and tries everything on it.
pub(crate) fn tracing() -> Tracing {
    let mut found = Tracing {
        attach: Outcome::Untried,
        rseq_configuration: Outcome::Untried,
        syscall_dispatch_configuration: Outcome::Untried,
        pidfd_getfd: Outcome::Untried,
        kcmp: Outcome::Untried,
        process_vm_readv: Outcome::Untried,
        process_madvise: Outcome::Untried,
        userfaultfd: Outcome::Untried,
        write_protect_async: Outcome::Untried,
        pagemap_scan: Outcome::Untried,
        soft_dirty: Outcome::Untried,
        sched_file: Outcome::Untried,
        wchan: Outcome::Untried,
        map_files: Outcome::Untried,
    };
    let Some((sheet, memory)) = Sheet::new().zip(scratch()) else {
        return found;
    };
    let Some(child) = Child::run(|| stand_in(&sheet, memory)) else {
        return found;
    };
    let until = Instant::now() + DEADLINE;
    while sheet.get(READY).is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_micros(50));
    }
    if sheet.get(READY).is_some() {
        // It says ready just before it sleeps: wchan is read last.
        try_files(child.pid, memory, &mut found);
        try_descriptors(child.pid, &sheet, memory, &mut found);
        found.wchan = wchan(child.pid);
        try_ptrace(child.pid, &mut found);
    }
    drop(child);
    // SAFETY: mapped by `scratch`, and nothing refers to it any more.
    unsafe { libc::munmap(memory as *mut libc::c_void, (PAGE * PAGES) as usize) };
    found
}

/// A few pages at an address that parent and child share.
fn scratch() -> Option<u64> {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let at = plain(
        libc::SYS_mmap,
        [0, PAGE * PAGES, prot, flags, -1i64 as u64, 0],
    )
    .ok()?;
    for page in 0..PAGES {
        // SAFETY: just mapped readable and writable.
        unsafe { ((at + page * PAGE) as *mut u8).write_volatile(1) };
    }
    Some(at)
}

fn stand_in(sheet: &Sheet, memory: u64) {
    // Written again, so that these are pages of the child's own.
    for page in 0..PAGES {
        // SAFETY: the child's copy of the scratch pages.
        unsafe { ((memory + page * PAGE) as *mut u8).write_volatile(2) };
    }
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | userfaultfd::USER_MODE_ONLY;
    match plain(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]) {
        Ok(fd) => sheet.put(UFFD, i32::try_from(fd).unwrap_or(-1)),
        Err(errno) => sheet.put(UFFD_ERROR, errno),
    }
    sheet.put(READY, 0);
    let _ = plain(libc::SYS_pause, [0; 6]);
}

fn io_outcome<T>(result: std::io::Result<T>) -> Outcome {
    Outcome::of(&result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
}

fn try_files(pid: i32, memory: u64, found: &mut Tracing) {
    found.sched_file = match fs::read_to_string(format!("/proc/{pid}/sched")) {
        Ok(text) if text.contains("se.exec_start") => Outcome::Works,
        other => match io_outcome(other) {
            Outcome::Works => Outcome::Untried,
            failed => failed,
        },
    };
    let first = fs::read_dir(format!("/proc/{pid}/map_files"));
    let first = first.map(|mut entries| entries.find_map(Result::ok));
    found.map_files = match first {
        Ok(Some(entry)) => io_outcome(File::open(entry.path())),
        Ok(None) => Outcome::Untried,
        Err(error) => io_outcome::<()>(Err(error)),
    };
    found.soft_dirty = soft_dirty(pid, memory);
}

fn soft_dirty(pid: i32, memory: u64) -> Outcome {
    let is_dirty = || -> std::io::Result<bool> {
        let mut entry = [0; 8];
        let at = memory / PAGE * 8;
        File::open(format!("/proc/{pid}/pagemap"))?.read_exact_at(&mut entry, at)?;
        Ok(u64::from_ne_bytes(entry) & SOFT_DIRTY != 0)
    };
    let tried = is_dirty().and_then(|before| {
        fs::write(format!("/proc/{pid}/clear_refs"), "4")?;
        Ok(before && !is_dirty()?)
    });
    match tried {
        Ok(true) => Outcome::Works,
        Ok(false) => Outcome::Errno(libc::ENOSYS),
        Err(error) => io_outcome::<()>(Err(error)),
    }
}

fn wchan(pid: i32) -> Outcome {
    let until = Instant::now() + Duration::from_millis(20);
    loop {
        match fs::read_to_string(format!("/proc/{pid}/wchan")) {
            Ok(text) if text != "0" && !text.is_empty() => return Outcome::Works,
            Ok(_) if Instant::now() < until => std::thread::sleep(Duration::from_micros(200)),
            Ok(_) => return Outcome::Errno(libc::EACCES),
            Err(error) => return io_outcome::<()>(Err(error)),
        }
    }
}

fn try_descriptors(pid: i32, sheet: &Sheet, memory: u64, found: &mut Tracing) {
    let remote = [memory, PAGE]; // struct iovec
    let mut bytes = [0u8; PAGE as usize];
    let local = [bytes.as_mut_ptr() as u64, PAGE];
    let read = [
        pid as u64,
        local.as_ptr() as u64,
        1,
        remote.as_ptr() as u64,
        1,
        0,
    ];
    // SAFETY: the kernel reads two iovecs and writes `bytes`, which the local one describes.
    found.process_vm_readv = Outcome::of(&unsafe { call(libc::SYS_process_vm_readv, read) });
    let own = u64::from(std::process::id());
    found.kcmp = Outcome::of(&plain(
        libc::SYS_kcmp,
        [own, pid as u64, KCMP_FILE, 0, 0, 0],
    ))
    .or_closed_stdin();
    let pidfd = match plain(libc::SYS_pidfd_open, [pid as u64, 0, 0, 0, 0, 0]) {
        Ok(pidfd) => pidfd,
        Err(errno) => {
            found.pidfd_getfd = Outcome::Errno(errno);
            return;
        }
    };
    let advise = [
        pidfd,
        remote.as_ptr() as u64,
        1,
        libc::MADV_COLD as u64,
        0,
        0,
    ];
    // SAFETY: the kernel reads one iovec; the advice changes no contents, and the child is ours.
    found.process_madvise = Outcome::of(&unsafe { call(libc::SYS_process_madvise, advise) });
    match (sheet.get(UFFD), sheet.get(UFFD_ERROR)) {
        (Some(fd), _) => {
            found.userfaultfd = Outcome::Works;
            let taken = plain(libc::SYS_pidfd_getfd, [pidfd, fd as u64, 0, 0, 0, 0]);
            found.pidfd_getfd = Outcome::of(&taken);
            if let Ok(uffd) = taken {
                found.write_protect_async = write_protect(uffd, memory);
                found.pagemap_scan = pagemap_scan(pid, memory, found.write_protect_async.works());
                close(uffd);
            }
        }
        (None, errno) => {
            found.userfaultfd = errno.map_or(Outcome::Untried, Outcome::Errno);
            let taken = plain(libc::SYS_pidfd_getfd, [pidfd, 0, 0, 0, 0, 0]);
            found.pidfd_getfd = Outcome::of(&taken).or_closed_stdin();
            if let Ok(fd) = taken {
                close(fd);
            }
            found.pagemap_scan = pagemap_scan(pid, memory, false);
        }
    }
    close(pidfd);
}

impl Outcome {
    /// EBADF says that the call works, but descriptor 0 is closed here.
    fn or_closed_stdin(self) -> Self {
        match self {
            Outcome::Errno(libc::EBADF) => Outcome::Works,
            other => other,
        }
    }
}

fn close(fd: u64) {
    let _ = plain(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
}

fn write_protect(uffd: u64, memory: u64) -> Outcome {
    // struct uffdio_api
    let mut api = [0xaa, userfaultfd::WP_ASYNC | userfaultfd::WP_UNPOPULATED, 0];
    let args = [uffd, userfaultfd::API, api.as_mut_ptr() as u64, 0, 0, 0];
    // SAFETY: the kernel reads and writes the struct.
    let offered = unsafe { call(libc::SYS_ioctl, args) };
    if offered.is_err() {
        return Outcome::of(&offered);
    }
    // struct uffdio_register
    let mut register = [memory, PAGE * PAGES, userfaultfd::MODE_WP, 0];
    let args = [
        uffd,
        userfaultfd::REGISTER,
        register.as_mut_ptr() as u64,
        0,
        0,
        0,
    ];
    // SAFETY: as above; the range is in the child's memory.
    Outcome::of(&unsafe { call(libc::SYS_ioctl, args) })
}

fn pagemap_scan(pid: i32, memory: u64, protect: bool) -> Outcome {
    use std::os::fd::AsRawFd;
    let pagemap = match File::open(format!("/proc/{pid}/pagemap")) {
        Ok(file) => file,
        Err(error) => return io_outcome::<()>(Err(error)),
    };
    let mut regions = [0u64; 3 * 4]; // struct page_region: start, end, categories
    let flags = if protect {
        PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC
    } else {
        0
    };
    // struct pm_scan_arg
    let mut scan = [
        96,
        flags,
        memory,
        memory + PAGE * PAGES,
        0,
        regions.as_mut_ptr() as u64,
        4,
        0,
        0,
        PAGE_IS_PRESENT,
        0,
        PAGE_IS_PRESENT,
    ];
    let fd = pagemap.as_raw_fd() as u64;
    let args = [fd, PAGEMAP_SCAN, scan.as_mut_ptr() as u64, 0, 0, 0];
    // SAFETY: the kernel reads and writes the struct, and writes at most four regions.
    let scanned = unsafe { call(libc::SYS_ioctl, args) };
    match scanned {
        Ok(1..) if regions[0] == memory && regions[1] == memory + PAGE * PAGES => Outcome::Works,
        Ok(_) => Outcome::Untried,
        Err(errno) => Outcome::Errno(errno),
    }
}

fn try_ptrace(pid: i32, found: &mut Tracing) {
    let ptrace = |request: u64, addr: u64, data: u64| {
        // SAFETY: the requests below write at most `addr` bytes at `data`, or ignore both; the pid is
        // a child that has not been reaped.
        unsafe { call(libc::SYS_ptrace, [request, pid as u64, addr, data, 0, 0]) }
    };
    let seized = ptrace(libc::PTRACE_SEIZE as u64, 0, 0);
    found.attach = Outcome::of(&seized);
    if seized.is_err() || ptrace(libc::PTRACE_INTERRUPT as u64, 0, 0).is_err() {
        return;
    }
    if !wait_for_stop(pid) {
        found.attach = Outcome::Untried;
        return;
    }
    let mut answer = [0u64; 8];
    let at = answer.as_mut_ptr() as u64;
    found.rseq_configuration = Outcome::of(&ptrace(PTRACE_GET_RSEQ_CONFIGURATION, 24, at));
    let dispatch = ptrace(PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, 32, at);
    found.syscall_dispatch_configuration = Outcome::of(&dispatch);
    let _ = ptrace(libc::PTRACE_DETACH as u64, 0, 0);
}

fn wait_for_stop(pid: i32) -> bool {
    let until = Instant::now() + DEADLINE;
    while Instant::now() < until {
        let mut status = 0;
        let flags = libc::WNOHANG | libc::__WALL;
        // SAFETY: `status` is an int; the pid is a child not yet reaped.
        let found = unsafe { libc::waitpid(pid, &raw mut status, flags) };
        if found == pid {
            return libc::WIFSTOPPED(status);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_our_own_can_be_stopped_and_asked() {
        let found = tracing();
        assert_eq!(found.attach, Outcome::Works);
        assert_eq!(found.process_vm_readv, Outcome::Works);
        assert_ne!(found.pagemap_scan, Outcome::Untried);
        assert_ne!(found.userfaultfd, Outcome::Untried);
    }
}
