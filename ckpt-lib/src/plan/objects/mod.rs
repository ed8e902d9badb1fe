//! Prepare stream: open file descriptions of every kind, in their slots.

mod channels;

use super::inodes::{is_memory, with_nul};
use super::of_processes;
use super::slots::Slots;
use super::{Arg, OpsBuilder, PlanError, StreamIndex};
use crate::snapshot::{
    Description, DescriptionId, DescriptionKind, DescriptionLock, External, InodeKind, PipeId,
    Process, SnapshotV1,
};
use c_shim::table::Reserved;
use channels::Holders;
use loader::ops::{Device, Expect, Feed, Inherit, OF_THE_SHADOW, Open, Terminal, Watch};

/// `F_GETFL` bits that `F_SETFL` may set later; the others belong to `open`.
const STATUS: u32 = (libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME) as u32;
const ASYNC: u32 = libc::O_ASYNC as u32;
const ACCESS: u32 = libc::O_ACCMODE as u32;
/// `TFD_IOC_SET_TICKS` (ioctl, linux/timerfd.h).
const TFD_IOC_SET_TICKS: u64 = 0x4008_5400;

struct Emitter<'a> {
    ops: &'a mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &'a SnapshotV1,
    slots: &'a Slots,
    holders: &'a Holders,
}

pub(super) fn emit(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    slots: &Slots,
) -> Result<Option<EndSlots>, PlanError> {
    let mut emitter = Emitter {
        ops,
        stream,
        snapshot,
        slots,
        holders: &Holders::of(snapshot),
    };
    for (index, description) in snapshot.descriptions.iter().enumerate() {
        emitter.simple(DescriptionId(index as u32), description)?;
    }
    for index in 0..snapshot.pipes.len() {
        emitter.pipe(PipeId(index as u32))?;
    }
    let pairs = emitter.socket_pairs()?;
    // Messages that name their sender are sent by him, and what leads to a process is there when that is.
    let late = snapshot.sockets.iter().any(|socket| {
        let mut sent = socket
            .inbox
            .iter()
            .flat_map(|message| &message.descriptions);
        socket.settings.senders.iter().any(Option::is_some)
            || sent.any(|id| of_processes::needs_its_process(snapshot, *id))
    });
    if !late {
        emitter.socket_contents(&pairs)?;
    }
    for (index, description) in snapshot.descriptions.iter().enumerate() {
        emitter.locks(DescriptionId(index as u32), description);
    }
    Ok(late.then_some(pairs))
}

/// What the job's process does when it is there, since the kernel puts its ids into each message, or since descriptors of it
/// lie in them: the unread contents of all sockets.
pub(super) fn emit_late(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    slots: &Slots,
    ends: &EndSlots,
) -> Result<(), PlanError> {
    let mut emitter = Emitter {
        ops,
        stream,
        snapshot,
        slots,
        holders: &Holders::of(snapshot),
    };
    emitter.socket_contents(ends)
}

/// Socket index → slot of that end.
pub(super) type EndSlots = Vec<u64>;

impl Emitter<'_> {
    fn slot(&self, id: DescriptionId) -> u64 {
        self.slots.description(id)
    }

    fn call(&mut self, label: &str, nr: i64, args: &[Arg], expect: Expect, value: u64) {
        self.ops.call(self.stream, label, nr, args, expect, value);
    }

    /// Everything that stands for itself: all kinds but pipes and sockets.
    fn simple(&mut self, id: DescriptionId, description: &Description) -> Result<(), PlanError> {
        let slot = self.slot(id);
        let label = format!("description {}", id.0);
        let flags = description.flags;
        let nonblock = u64::from(flags & libc::O_NONBLOCK as u32);
        match &description.kind {
            DescriptionKind::Inode(inode) => {
                let count = self.snapshot.inodes.len();
                let record =
                    self.snapshot
                        .inodes
                        .get(inode.0 as usize)
                        .ok_or(PlanError::Dangling {
                            what: "inode",
                            index: inode.0 as usize,
                            count,
                        })?;
                self.file(id, description, *inode, &record.kind, &record.path.0);
            }
            DescriptionKind::EventFd { count, semaphore } => {
                let label = format!("{label} (eventfd)");
                let first = u32::try_from(*count).unwrap_or(0);
                let mode = nonblock | u64::from(*semaphore);
                let args = [Arg::Value(u64::from(first)), Arg::Value(mode)];
                self.call(&label, libc::SYS_eventfd2, &args, Expect::Slot, slot);
                if u64::from(first) != *count {
                    let bytes = count.to_le_bytes().to_vec();
                    let args = [Arg::Value(slot), Arg::Bytes(bytes), Arg::Value(8)];
                    self.call(&label, libc::SYS_write, &args, Expect::Exactly, 8);
                }
            }
            DescriptionKind::SignalFd { mask } => {
                let args = [
                    Arg::Value(u64::MAX),
                    Arg::Bytes(mask.to_le_bytes().to_vec()),
                    Arg::Value(8),
                    Arg::Value(nonblock),
                ];
                let label = format!("{label} (signalfd)");
                self.call(&label, libc::SYS_signalfd4, &args, Expect::Slot, slot);
            }
            DescriptionKind::TimerFd {
                clock,
                ticks,
                settime_flags,
                value_ns,
                interval_ns,
            } => {
                let label = format!("{label} (timerfd)");
                let args = [Arg::Value(*clock as u64), Arg::Value(nonblock)];
                self.call(&label, libc::SYS_timerfd_create, &args, Expect::Slot, slot);
                self.arm_timerfd(
                    &label,
                    slot,
                    *clock,
                    *settime_flags,
                    *value_ns,
                    *interval_ns,
                );
                if *ticks != 0 {
                    let args = [
                        Arg::Value(slot),
                        Arg::Value(TFD_IOC_SET_TICKS),
                        Arg::Bytes(ticks.to_le_bytes().to_vec()),
                    ];
                    self.call(&label, libc::SYS_ioctl, &args, Expect::Success, 0);
                }
            }
            DescriptionKind::Epoll { .. } => {
                let label = format!("{label} (epoll)");
                self.call(&label, libc::SYS_epoll_create1, &[], Expect::Slot, slot);
            }
            DescriptionKind::Inotify { watches } => {
                let label = format!("{label} (inotify)");
                let args = [Arg::Value(nonblock)];
                self.call(&label, libc::SYS_inotify_init1, &args, Expect::Slot, slot);
                // The kernel gives numbers in rising order only.
                let mut watches: Vec<_> = watches.iter().collect();
                watches.sort_by_key(|watch| watch.wd);
                for watch in watches {
                    let op = Watch {
                        slot,
                        wd: watch.wd as u64,
                        mask: u64::from(watch.mask),
                    };
                    self.ops.push(self.stream, &op, &with_nul(&watch.path.0));
                }
            }
            DescriptionKind::External(external) => self.external(slot, flags, external)?,
            DescriptionKind::Session { .. } => {
                let op = Inherit {
                    slot,
                    fd: Reserved::Session.number() as u64,
                    flags: u64::from(flags & STATUS),
                };
                self.ops
                    .push(self.stream, &op, OF_THE_SHADOW.to_bytes_with_nul());
            }
            // Made elsewhere: below, or in the process (pidfd).
            DescriptionKind::Pipe(_)
            | DescriptionKind::Socket(_)
            | DescriptionKind::PidFd { .. } => {}
        }
        Ok(())
    }

    fn file(
        &mut self,
        id: DescriptionId,
        description: &Description,
        inode: crate::snapshot::InodeId,
        kind: &InodeKind,
        path: &[u8],
    ) {
        let slot = self.slot(id);
        let own = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC) as u32;
        let mut flags = description.flags & !own & !ASYNC;
        if flags & libc::O_TMPFILE as u32 == libc::O_TMPFILE as u32 {
            flags &= !(libc::O_TMPFILE as u32); // made without a name; there is one file of it now
        }
        let label = format!("description {} ({})", id.0, crate::shown::bytes(path));
        if *kind == InodeKind::OfProcess {
            return; // by the process, when it exists
        }
        if *kind == InodeKind::Device {
            let op = Device {
                slot,
                flags: u64::from(flags),
                device: self.snapshot.inodes[inode.0 as usize].rdev,
                fd: self.least_descriptor(id),
            };
            self.ops.push(self.stream, &op, &with_nul(path));
            return;
        }
        if *kind == InodeKind::Fifo {
            let args = [
                Arg::Value(libc::AT_FDCWD as u64),
                Arg::Bytes(with_nul(path)),
                Arg::Value(u64::from(flags | libc::O_NOCTTY as u32)),
            ];
            self.call(&label, libc::SYS_openat, &args, Expect::Slot, slot);
            return;
        }
        let inode_slot = self.slots.inode(inode);
        if is_memory(kind) && self.is_first_read_write(id, inode) {
            // The description that memfd_create made is this one; no /proc needed.
            let args = [
                Arg::Value(inode_slot),
                Arg::Value(slot),
                Arg::Value(libc::O_CLOEXEC as u64),
            ];
            self.call(&label, libc::SYS_dup3, &args, Expect::Success, 0);
            self.status(&label, slot, flags);
            let args = [
                Arg::Value(slot),
                Arg::Value(description.offset),
                Arg::Value(libc::SEEK_SET as u64),
            ];
            self.call(&label, libc::SYS_lseek, &args, Expect::Success, 0);
            return;
        }
        let op = Open {
            slot,
            inode_slot,
            flags: u64::from(flags),
            offset: description.offset,
        };
        self.ops.push(self.stream, &op, &with_nul(path));
    }

    /// The least number under which a process of the job has it; `u64::MAX` if none has.
    fn least_descriptor(&self, id: DescriptionId) -> u64 {
        let tables = self.snapshot.processes.iter();
        let all = tables.flat_map(|process| &process.descriptors);
        let of_it = all.filter(|descriptor| descriptor.description == id);
        of_it
            .map(|descriptor| u64::from(descriptor.fd.cast_unsigned()))
            .min()
            .unwrap_or(u64::MAX)
    }

    fn is_first_read_write(&self, id: DescriptionId, inode: crate::snapshot::InodeId) -> bool {
        let first = self.snapshot.descriptions.iter().position(|description| {
            description.kind == DescriptionKind::Inode(inode)
                && description.flags & ACCESS == libc::O_RDWR as u32
        });
        first == Some(id.0 as usize)
    }

    fn status(&mut self, label: &str, slot: u64, flags: u32) {
        if flags & STATUS != 0 {
            let args = [
                Arg::Value(slot),
                Arg::Value(libc::F_SETFL as u64),
                Arg::Value(u64::from(flags & STATUS)),
            ];
            self.call(label, libc::SYS_fcntl, &args, Expect::Success, 0);
        }
    }

    fn arm_timerfd(
        &mut self,
        label: &str,
        slot: u64,
        clock: i32,
        settime_flags: u32,
        value_ns: u64,
        interval_ns: u64,
    ) {
        // A disarmed timer may have a period all the same.
        if value_ns == 0 && interval_ns == 0 {
            return;
        }
        const ABSTIME: u32 = 1;
        let wall = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM);
        // An absolute time on the wall clock stays where it was; all else is time left.
        let (flags, value_ns) = if wall && settime_flags & ABSTIME != 0 && value_ns != 0 {
            (settime_flags, self.snapshot.clocks.realtime_ns + value_ns)
        } else {
            (0, value_ns)
        };
        let args = [
            Arg::Value(slot),
            Arg::Value(u64::from(flags)),
            Arg::Bytes(itimerspec(value_ns, interval_ns)),
            Arg::Value(0),
        ];
        self.call(label, libc::SYS_timerfd_settime, &args, Expect::Success, 0);
    }

    fn external(&mut self, slot: u64, flags: u32, external: &External) -> Result<(), PlanError> {
        let inherit = u64::from(external.inherit);
        let unread = external.unread;
        if unread.len == 0 {
            let op = Inherit {
                slot,
                fd: inherit,
                flags: u64::from(flags & STATUS),
            };
            self.ops.push(self.stream, &op, &with_nul(&external.was.0));
        } else {
            let op = Feed {
                slot,
                fd: inherit,
                flags: u64::from(flags & STATUS),
                from: self.slots.unread(unread)?,
                at: unread.at,
                len: unread.len,
            };
            self.ops.push(self.stream, &op, &[]);
        }
        if let Some(terminal) = &external.terminal {
            let own_group = |process: &&Process| {
                process.pgid == process.pid && process.sid != process.pid && terminal.foreground
            };
            let root = self.snapshot.processes.first();
            let op = Terminal {
                slot,
                group: root
                    .filter(own_group)
                    .map_or(0, |root| u64::from(root.pgid)),
            };
            self.ops.push(self.stream, &op, &terminal.termios2);
        }
        Ok(())
    }

    fn locks(&mut self, id: DescriptionId, description: &Description) {
        let slot = self.slot(id);
        for lock in &description.locks {
            match lock {
                DescriptionLock::Flock { exclusive } => {
                    let how = if *exclusive {
                        libc::LOCK_EX
                    } else {
                        libc::LOCK_SH
                    };
                    let args = [Arg::Value(slot), Arg::Value((how | libc::LOCK_NB) as u64)];
                    let label = format!("description {}: flock", id.0);
                    self.call(&label, libc::SYS_flock, &args, Expect::Success, 0);
                }
                DescriptionLock::Ofd(range) => {
                    let args = [
                        Arg::Value(slot),
                        Arg::Value(libc::F_OFD_SETLK as u64),
                        Arg::Bytes(flock(range)),
                    ];
                    let label = format!("description {}: open file description lock", id.0);
                    self.call(&label, libc::SYS_fcntl, &args, Expect::Success, 0);
                }
            }
        }
    }
}

/// `struct flock` (fcntl(2)), whence = SEEK_SET, pid = 0.
pub(super) fn flock(range: &crate::snapshot::LockRange) -> Vec<u8> {
    let kind = if range.exclusive {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    } as i16;
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend((libc::SEEK_SET as i16).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(range.start.to_le_bytes());
    bytes.extend(range.len.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// `struct itimerspec`: interval, then value.
pub(super) fn itimerspec(value_ns: u64, interval_ns: u64) -> Vec<u8> {
    [interval_ns, value_ns]
        .into_iter()
        .flat_map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000])
        .flat_map(u64::to_le_bytes)
        .collect()
}
