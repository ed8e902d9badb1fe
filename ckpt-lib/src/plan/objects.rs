//! Prepare stream: open file descriptions of every kind, in their slots.

use super::inodes::{is_memory, with_nul};
use super::slots::Slots;
use super::{Arg, OpsBuilder, PlanError, StreamIndex};
use crate::snapshot::{
    Description, DescriptionId, DescriptionKind, DescriptionLock, External, InodeKind, PipeId,
    Process, SnapshotV1, SocketId,
};
use loader::ops::{Expect, Feed, Inherit, Open, Pipe, Send, SocketPair, Terminal, Watch};

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
}

pub(super) fn emit(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    slots: &Slots,
) -> Result<(), PlanError> {
    let mut emitter = Emitter {
        ops,
        stream,
        snapshot,
        slots,
    };
    for (index, description) in snapshot.descriptions.iter().enumerate() {
        emitter.simple(DescriptionId(index as u32), description)?;
    }
    for index in 0..snapshot.pipes.len() {
        emitter.pipe(PipeId(index as u32))?;
    }
    let pairs = emitter.socket_pairs()?;
    emitter.socket_contents(&pairs)?;
    for (index, description) in snapshot.descriptions.iter().enumerate() {
        emitter.locks(DescriptionId(index as u32), description);
    }
    Ok(())
}

/// Socket index → slot of that end.
type EndSlots = Vec<u64>;

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
            DescriptionKind::External(external) => self.external(slot, flags, external),
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
        let label = format!("description {} ({})", id.0, String::from_utf8_lossy(path));
        if *kind == InodeKind::OfProcess {
            return; // by the process, when it exists
        }
        if matches!(kind, InodeKind::Device | InodeKind::Fifo) {
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

    fn external(&mut self, slot: u64, flags: u32, external: &External) {
        let inherit = u64::from(external.inherit);
        if external.unread.is_empty() {
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
                len: external.unread.len() as u64,
                flags: u64::from(flags & STATUS),
            };
            self.ops.push(self.stream, &op, &external.unread);
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
    }

    fn pipe(&mut self, id: PipeId) -> Result<(), PlanError> {
        let record = &self.snapshot.pipes[id.0 as usize];
        let holders: Vec<DescriptionId> = self.holders(&DescriptionKind::Pipe(id));
        let access = |wanted: i32| {
            let found = holders.iter().find(|holder| {
                self.snapshot.descriptions[holder.0 as usize].flags & ACCESS == wanted as u32
            });
            found.map(|holder| self.slot(*holder))
        };
        let spare = 2 * id.0 as usize;
        let read = access(libc::O_RDONLY);
        let write = access(libc::O_WRONLY);
        let spare_read = self.slots.spare_end(self.snapshot, spare);
        let spare_write = self.slots.spare_end(self.snapshot, spare + 1);
        let label = format!("pipe {}", id.0);
        let fill_slot = if let Some(fifo) = record.fifo {
            let path = &self.snapshot.inodes[fifo.0 as usize].path.0;
            // Opening for both never waits and lets the ends be opened after it.
            let args = [
                Arg::Value(libc::AT_FDCWD as u64),
                Arg::Bytes(with_nul(path)),
                Arg::Value((libc::O_RDWR | libc::O_NONBLOCK) as u64),
            ];
            let label = format!("FIFO {}", String::from_utf8_lossy(path));
            self.call(&label, libc::SYS_openat, &args, Expect::Slot, spare_write);
            spare_write
        } else {
            let op = Pipe {
                read_slot: read.unwrap_or(spare_read),
                write_slot: write.unwrap_or(spare_write),
                flags: u64::from(if record.packets {
                    libc::O_DIRECT as u32
                } else {
                    0
                }),
            };
            self.ops.push(self.stream, &op, &[]);
            op.write_slot
        };
        let capacity = [
            Arg::Value(fill_slot),
            Arg::Value(libc::F_SETPIPE_SZ as u64),
            Arg::Value(u64::from(record.capacity)),
        ];
        self.call(&label, libc::SYS_fcntl, &capacity, Expect::OrNoted, 0);
        if !record.contents.is_empty() {
            // A machine that gives it less room must be an error, not a wait without end.
            let packets = if record.packets { libc::O_DIRECT } else { 0 };
            let flags = [
                Arg::Value(fill_slot),
                Arg::Value(libc::F_SETFL as u64),
                Arg::Value((libc::O_NONBLOCK | packets) as u64),
            ];
            self.call(&label, libc::SYS_fcntl, &flags, Expect::Success, 0);
        }
        let unread: usize = record.contents.iter().map(Vec::len).sum();
        let full = format!(
            "{label} ({unread} bytes unread, capacity {})",
            record.capacity
        );
        for part in &record.contents {
            let len = part.len() as u64;
            let args = [
                Arg::Value(fill_slot),
                Arg::Bytes(part.clone()),
                Arg::Value(len),
            ];
            self.call(&full, libc::SYS_write, &args, Expect::Exactly, len);
        }
        let mut made = vec![];
        if record.fifo.is_none() {
            made = [read, write].into_iter().flatten().collect();
        }
        for holder in &holders {
            let slot = self.slot(*holder);
            let flags = self.snapshot.descriptions[holder.0 as usize].flags & !ASYNC;
            if made.contains(&slot) {
                let args = [
                    Arg::Value(slot),
                    Arg::Value(libc::F_SETFL as u64),
                    Arg::Value(u64::from(flags & STATUS)),
                ];
                self.call(&label, libc::SYS_fcntl, &args, Expect::Success, 0);
                continue;
            }
            let path = match record.fifo {
                Some(fifo) => self.snapshot.inodes[fifo.0 as usize].path.0.clone(),
                None => format!("/proc/self/fd/{fill_slot}").into_bytes(),
            };
            let args = [
                Arg::Value(libc::AT_FDCWD as u64),
                Arg::Bytes(with_nul(&path)),
                Arg::Value(u64::from(flags & (ACCESS | STATUS))),
            ];
            self.call(&label, libc::SYS_openat, &args, Expect::Slot, slot);
        }
        let spares = if record.fifo.is_some() {
            vec![spare_write]
        } else {
            let spare_for = |end: Option<u64>, spare| end.is_none().then_some(spare);
            [spare_for(read, spare_read), spare_for(write, spare_write)]
                .into_iter()
                .flatten()
                .collect()
        };
        for spare in spares {
            self.call(
                &label,
                libc::SYS_close,
                &[Arg::Value(spare)],
                Expect::Success,
                0,
            );
        }
        Ok(())
    }

    fn holders(&self, kind: &DescriptionKind) -> Vec<DescriptionId> {
        let found = self.snapshot.descriptions.iter().enumerate();
        found
            .filter(|(_, description)| description.kind == *kind)
            .map(|(index, _)| DescriptionId(index as u32))
            .collect()
    }

    /// Makes every pair; returns the slot of each end.
    fn socket_pairs(&mut self) -> Result<EndSlots, PlanError> {
        let count = self.snapshot.sockets.len();
        let spare_from = 2 * self.snapshot.pipes.len();
        let mut ends = vec![u64::MAX; count];
        for index in 0..count {
            if ends[index] != u64::MAX {
                continue;
            }
            let record = &self.snapshot.sockets[index];
            let own = self.holders(&DescriptionKind::Socket(SocketId(index as u32)));
            let spare = self.slots.spare_end(self.snapshot, spare_from + 2 * index);
            let first = own.first().map_or(spare, |id| self.slot(*id));
            let peer = record.peer.map(|peer| peer.0 as usize);
            if let Some(peer) = peer
                && peer >= count
            {
                return Err(PlanError::Dangling {
                    what: "socket",
                    index: peer,
                    count,
                });
            }
            let peer_holders = peer
                .map(|peer| self.holders(&DescriptionKind::Socket(SocketId(peer as u32))))
                .unwrap_or_default();
            let peer_spare = self
                .slots
                .spare_end(self.snapshot, spare_from + 2 * index + 1);
            let second = peer_holders.first().map_or(peer_spare, |id| self.slot(*id));
            let op = SocketPair {
                first_slot: first,
                second_slot: second,
                kind: record.kind as u64,
            };
            self.ops.push(self.stream, &op, &[]);
            ends[index] = first;
            if let Some(peer) = peer {
                ends[peer] = second;
            }
            self.socket_options(index, first);
            if let Some(peer) = peer {
                self.socket_options(peer, second);
            }
        }
        Ok(ends)
    }

    fn socket_options(&mut self, index: usize, slot: u64) {
        let record = &self.snapshot.sockets[index];
        let label = format!("socket {index}: options");
        let mut set = |option: i32, value: u32| {
            let args = [
                Arg::Value(slot),
                Arg::Value(libc::SOL_SOCKET as u64),
                Arg::Value(option as u64),
                Arg::Bytes(value.to_le_bytes().to_vec()),
                Arg::Value(4),
            ];
            self.ops.call(
                self.stream,
                &label,
                libc::SYS_setsockopt,
                &args,
                Expect::OrNoted,
                0,
            );
        };
        // The kernel doubles what it is given (socket(7)).
        if record.buffers[0] != 0 {
            set(libc::SO_SNDBUF, record.buffers[0] / 2);
        }
        if record.buffers[1] != 0 {
            set(libc::SO_RCVBUF, record.buffers[1] / 2);
        }
        if record.pass_credentials {
            set(libc::SO_PASSCRED, 1);
        }
    }

    fn socket_contents(&mut self, ends: &EndSlots) -> Result<(), PlanError> {
        let count = self.snapshot.sockets.len();
        let spare_from = 2 * self.snapshot.pipes.len();
        for index in 0..count {
            let record = &self.snapshot.sockets[index];
            let sender = match record.peer {
                Some(peer) => ends[peer.0 as usize],
                None => self
                    .slots
                    .spare_end(self.snapshot, spare_from + 2 * index + 1),
            };
            let room = record
                .peer
                .map_or(0, |peer| self.snapshot.sockets[peer.0 as usize].buffers[0]);
            let label = format!("socket {index} (its peer's send buffer: {room} bytes)");
            for message in &record.inbox {
                let op = Send {
                    slot: sender,
                    fds: message.descriptions.len() as u64,
                    flags: 0,
                    len: message.bytes.len() as u64,
                };
                let mut tail = vec![];
                for description in &message.descriptions {
                    tail.extend(self.slot(*description).to_le_bytes());
                }
                tail.extend(&message.bytes);
                tail.extend(label.as_bytes());
                tail.push(0);
                self.ops.push(self.stream, &op, &tail);
            }
        }
        for (index, &slot) in ends.iter().enumerate() {
            let record = &self.snapshot.sockets[index];
            let label = format!("socket {index}");
            let how = match record.shutdown {
                1 => Some(libc::SHUT_RD),
                2 => Some(libc::SHUT_WR),
                3 => Some(libc::SHUT_RDWR),
                _ => None,
            };
            if record.peer.is_none() {
                let spare = self
                    .slots
                    .spare_end(self.snapshot, spare_from + 2 * index + 1);
                self.call(
                    &label,
                    libc::SYS_close,
                    &[Arg::Value(spare)],
                    Expect::Success,
                    0,
                );
            }
            if let Some(how) = how {
                let args = [Arg::Value(slot), Arg::Value(how as u64)];
                self.call(&label, libc::SYS_shutdown, &args, Expect::OrNoted, 0);
            }
            let id = DescriptionKind::Socket(SocketId(index as u32));
            if let Some(holder) = self.holders(&id).first() {
                let flags = self.snapshot.descriptions[holder.0 as usize].flags;
                self.status(&label, slot, flags);
            }
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
