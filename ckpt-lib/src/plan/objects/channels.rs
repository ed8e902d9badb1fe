//! Pipes, FIFOs and socket pairs within the job: both ends, what lies unread in them, their options.

use super::{ACCESS, ASYNC, Emitter, EndSlots, STATUS, with_nul};
use crate::plan::{Arg, PlanError};
use crate::snapshot::{DescriptionId, DescriptionKind, PipeId, SnapshotV1, SocketId};
use c_shim::nodes;
use c_shim::table::Reserved;
use loader::ops::{Expect, Pipe, Refill, Send, SocketPair};
use std::collections::HashMap;

/// A folder and a name in it, as arguments.
fn fifo_at(path: &[u8]) -> [Arg; 2] {
    let (folder, name) = match path.strip_prefix(nodes::FOLDER) {
        Some(name) => (Reserved::Nodes.number() as u64, name),
        None => (libc::AT_FDCWD as u64, path),
    };
    [Arg::Value(folder), Arg::Bytes(with_nul(name))]
}

/// Which descriptions are ends of each pipe and socket.
pub(super) struct Holders {
    pipes: HashMap<PipeId, Vec<DescriptionId>>,
    sockets: HashMap<SocketId, Vec<DescriptionId>>,
}

impl Holders {
    pub(super) fn of(snapshot: &SnapshotV1) -> Self {
        let mut holders = Holders {
            pipes: HashMap::new(),
            sockets: HashMap::new(),
        };
        for (index, description) in snapshot.descriptions.iter().enumerate() {
            let found = match description.kind {
                DescriptionKind::Pipe(id) => holders.pipes.entry(id).or_default(),
                DescriptionKind::Socket(id) => holders.sockets.entry(id).or_default(),
                _ => continue,
            };
            found.push(DescriptionId(index as u32));
        }
        holders
    }

    fn of_pipe(&self, id: PipeId) -> &[DescriptionId] {
        self.pipes.get(&id).map_or(&[], Vec::as_slice)
    }

    fn of_socket(&self, index: usize) -> &[DescriptionId] {
        let id = SocketId(index as u32);
        self.sockets.get(&id).map_or(&[], Vec::as_slice)
    }
}

impl Emitter<'_> {
    pub(super) fn pipe(&mut self, id: PipeId) -> Result<(), PlanError> {
        let record = &self.snapshot.pipes[id.0 as usize];
        let holders = self.holders.of_pipe(id);
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
            let label = format!("FIFO {}", crate::shown::bytes(path));
            self.make_fifo(&label, path);
            // Opening for both never waits and lets the ends be opened after it.
            let [folder, name] = fifo_at(path);
            let args = [
                folder,
                name,
                Arg::Value((libc::O_RDWR | libc::O_NONBLOCK) as u64),
            ];
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
        let unread: u64 = record.contents.iter().map(|part| part.len).sum();
        let full = format!(
            "{label} ({unread} bytes unread, capacity {})",
            record.capacity
        );
        for part in &record.contents {
            let op = Refill {
                slot: fill_slot,
                from: self.slots.unread(*part)?,
                at: part.at,
                len: part.len,
            };
            self.ops.push(self.stream, &op, &with_nul(full.as_bytes()));
        }
        let mut made = vec![];
        if record.fifo.is_none() {
            made = [read, write].into_iter().flatten().collect();
        }
        for holder in holders {
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
            let [folder, name] = fifo_at(&path);
            let args = [
                folder,
                name,
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

    /// One whose name is at the shadow lives in a folder that is new with each restart.
    fn make_fifo(&mut self, label: &str, path: &[u8]) {
        if !path.starts_with(nodes::FOLDER) {
            return;
        }
        const MODE: u32 = 0o666;
        let [folder, name] = fifo_at(path);
        let mode = Arg::Value((libc::S_IFIFO | MODE).into());
        let args = [folder.clone(), name.clone(), mode, Arg::Value(0)];
        self.call(label, libc::SYS_mknodat, &args, Expect::Success, 0);
        let args = [folder, name, Arg::Value(MODE.into())];
        self.call(label, libc::SYS_fchmodat, &args, Expect::Success, 0);
    }

    /// Makes every pair, and every socket that is not connected; returns the slot of each end.
    pub(super) fn socket_pairs(&mut self) -> Result<EndSlots, PlanError> {
        let count = self.snapshot.sockets.len();
        let spare_from = 2 * self.snapshot.pipes.len();
        let mut ends = vec![u64::MAX; count];
        for index in 0..count {
            if ends[index] != u64::MAX {
                continue;
            }
            let record = &self.snapshot.sockets[index];
            let own = self.holders.of_socket(index);
            let spare = self.slots.spare_end(self.snapshot, spare_from + 2 * index);
            let first = own.first().map_or(spare, |id| self.slot(*id));
            let peer = record.peer.map(|peer| peer.0 as usize);
            if peer == Some(index) {
                self.lone_socket(index, first);
                ends[index] = first;
                continue;
            }
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
                .map(|peer| self.holders.of_socket(peer))
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

    /// A socket that is not connected.
    fn lone_socket(&mut self, index: usize, slot: u64) {
        let kind = self.snapshot.sockets[index].kind | libc::SOCK_CLOEXEC;
        let args = [
            Arg::Value(libc::AF_UNIX as u64),
            Arg::Value(kind as u64),
            Arg::Value(0),
        ];
        let label = format!("socket {index}");
        self.call(&label, libc::SYS_socket, &args, Expect::Slot, slot);
        self.socket_options(index, slot);
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
    }

    /// SO_PASSCRED: the kernel puts the sender's ids into a message if either end has it when it is sent.
    fn pass_credentials(&mut self, index: usize, slot: u64, on: bool) {
        let args = [
            Arg::Value(slot),
            Arg::Value(libc::SOL_SOCKET as u64),
            Arg::Value(libc::SO_PASSCRED as u64),
            Arg::Bytes(u32::from(on).to_le_bytes().to_vec()),
            Arg::Value(4),
        ];
        let label = format!("socket {index}: SO_PASSCRED");
        self.call(&label, libc::SYS_setsockopt, &args, Expect::OrNoted, 0);
    }

    pub(super) fn socket_contents(&mut self, ends: &EndSlots) -> Result<(), PlanError> {
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
            let mut named = false;
            for (at, message) in record.inbox.iter().enumerate() {
                let sent = record.settings.senders.get(at).copied().flatten();
                if sent.is_some() != named {
                    named = sent.is_some();
                    self.pass_credentials(index, ends[index], named);
                }
                let op = Send {
                    slot: sender,
                    fds: message.descriptions.len() as u64,
                    flags: 0,
                    from: match message.bytes.len {
                        0 => 0,
                        _ => self.slots.unread(message.bytes)?,
                    },
                    at: message.bytes.at,
                    len: message.bytes.len,
                };
                let mut tail = vec![];
                for description in &message.descriptions {
                    tail.extend(self.slot(*description).to_le_bytes());
                }
                tail.extend(label.as_bytes());
                tail.push(0);
                self.ops.push(self.stream, &op, &tail);
            }
            if named {
                self.pass_credentials(index, ends[index], false);
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
            // Behind what lies in it: SO_PASSRIGHTS forbids to send descriptors.
            for (option, value) in &record.settings.options {
                let args = [
                    Arg::Value(slot),
                    Arg::Value(libc::SOL_SOCKET as u64),
                    Arg::Value(*option as u64),
                    Arg::Bytes(value.clone()),
                    Arg::Value(value.len() as u64),
                ];
                let label = format!("socket {index}: option {option}");
                self.call(&label, libc::SYS_setsockopt, &args, Expect::OrNoted, 0);
            }
            if record.pass_credentials {
                self.pass_credentials(index, slot, true);
            }
            if let Some(how) = how {
                let args = [Arg::Value(slot), Arg::Value(how as u64)];
                self.call(&label, libc::SYS_shutdown, &args, Expect::OrNoted, 0);
            }
            if let Some(holder) = self.holders.of_socket(index).first() {
                let flags = self.snapshot.descriptions[holder.0 as usize].flags;
                self.status(&label, slot, flags);
            }
        }
        Ok(())
    }
}
