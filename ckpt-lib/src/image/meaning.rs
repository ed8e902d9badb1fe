//! Whether the records of a snapshot fit together: what decoding alone cannot know.

use crate::snapshot::{
    Description, DescriptionId, DescriptionKind, InodeId, InodeKind, MappingKind, PipeId, Process,
    SnapshotV1, SocketId, Unread,
};

/// Says the first thing that does not fit.
pub(super) fn check(snapshot: &SnapshotV1) -> Result<(), String> {
    let mut inodes = snapshot.inodes.iter();
    let kept = inodes.find(|inode| inode.kind == InodeKind::Unread);
    let tables = Tables {
        snapshot,
        unread: kept.map_or(0, |inode| inode.size),
    };
    for (index, description) in snapshot.descriptions.iter().enumerate() {
        let place = || format!("description {index}");
        tables
            .check_description(description)
            .map_err(within(place))?;
    }
    for (index, pipe) in snapshot.pipes.iter().enumerate() {
        let fifo = pipe.fifo.map_or(Ok(()), |inode| tables.inode(inode));
        let parts = || {
            pipe.contents
                .iter()
                .try_for_each(|part| tables.unread(*part))
        };
        fifo.and_then(|()| parts())
            .map_err(within(|| format!("pipe {index}")))?;
    }
    for (index, socket) in snapshot.sockets.iter().enumerate() {
        let place = || format!("socket {index}");
        let peer = socket.peer.map_or(Ok(()), |peer| tables.socket(peer));
        peer.map_err(within(place))?;
        let mut messages = socket.inbox.iter();
        messages
            .try_for_each(|message| tables.unread(message.bytes))
            .map_err(within(place))?;
        let in_flight = socket
            .inbox
            .iter()
            .flat_map(|message| &message.descriptions);
        for description in in_flight {
            tables.description(*description).map_err(within(place))?;
        }
    }
    for process in &snapshot.processes {
        let place = || format!("process {}", process.pid);
        tables.check_process(process).map_err(within(place))?;
    }
    Ok(())
}

fn within(place: impl Fn() -> String) -> impl Fn(String) -> String {
    move |what| format!("{}: {what}", place())
}

struct Tables<'a> {
    snapshot: &'a SnapshotV1,
    /// How many unread bytes there are.
    unread: u64,
}

impl Tables<'_> {
    fn entry(what: &str, index: u32, len: usize) -> Result<(), String> {
        if (index as usize) < len {
            return Ok(());
        }
        Err(format!("refers to {what} {index} of {len}"))
    }

    fn inode(&self, InodeId(index): InodeId) -> Result<(), String> {
        Self::entry("inode", index, self.snapshot.inodes.len())
    }

    fn description(&self, DescriptionId(index): DescriptionId) -> Result<(), String> {
        Self::entry("description", index, self.snapshot.descriptions.len())
    }

    fn pipe(&self, PipeId(index): PipeId) -> Result<(), String> {
        Self::entry("pipe", index, self.snapshot.pipes.len())
    }

    fn socket(&self, SocketId(index): SocketId) -> Result<(), String> {
        Self::entry("socket", index, self.snapshot.sockets.len())
    }

    fn unread(&self, unread: Unread) -> Result<(), String> {
        let kept = self.unread;
        match unread.at.checked_add(unread.len) {
            Some(end) if end <= kept || unread.len == 0 => Ok(()),
            _ => Err(format!(
                "{} unread bytes from {} on are said to be there, of {kept}",
                unread.len, unread.at
            )),
        }
    }

    fn check_description(&self, description: &Description) -> Result<(), String> {
        match &description.kind {
            DescriptionKind::Inode(inode) => self.inode(*inode),
            DescriptionKind::Pipe(pipe) => self.pipe(*pipe),
            DescriptionKind::Socket(socket) => self.socket(*socket),
            DescriptionKind::External(external) => self.unread(external.unread),
            DescriptionKind::Epoll { entries } => entries
                .iter()
                .try_for_each(|entry| self.description(entry.target)),
            _ => Ok(()),
        }
    }

    fn check_process(&self, process: &Process) -> Result<(), String> {
        if process.threads.is_empty() {
            return Err("has no thread".to_owned());
        }
        process
            .descriptors
            .iter()
            .try_for_each(|descriptor| self.description(descriptor.description))?;
        process
            .record_locks
            .iter()
            .try_for_each(|lock| self.inode(lock.inode))?;
        process.memory.exe.map_or(Ok(()), |exe| self.inode(exe))?;
        let mut end = 0;
        for mapping in &process.memory.mappings {
            let place = || format!("mapping {:#x}-{:#x}", mapping.start, mapping.end);
            let paged = mapping.start.is_multiple_of(4096) && mapping.end.is_multiple_of(4096);
            if mapping.start >= mapping.end || mapping.start < end || !paged {
                return Err(format!("{} is out of place", place()));
            }
            end = mapping.end;
            match mapping.kind {
                MappingKind::PrivateFile { inode, .. } | MappingKind::Shared { inode, .. } => {
                    self.inode(inode).map_err(within(place))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
