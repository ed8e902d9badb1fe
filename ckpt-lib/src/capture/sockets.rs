//! Sockets: pairs within the job, with their messages and descriptors in flight; all others lead
//! out of the job.

use super::CaptureError;
use super::descriptors::{Survey, external};
use super::open_files::{OpenFile, OpenFiles};
use super::outside::Outside;
use super::refusal::{Refusals, TOO_LONG};
use super::shim::Shim;
use super::subject::Subject;
use super::unix_diag::{UnixSocket, UnixSockets};
use super::unread::{messages, unread_of_stream};
use crate::shown;
use crate::snapshot::{
    DescriptionId, DescriptionKind, Sender, SocketId, SocketMessage, SocketRecord, SocketSettings,
    Unread,
};
use crate::sys::channels::{poll_now, socket_option, socket_option_bytes, unread_len};
use nix::sys::socket::{SockaddrLike, SockaddrStorage, getpeername, getsockname};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Options that no record holds and that next to nobody sets.
const SO_PASSPIDFD: i32 = 76;
const FOREIGN_OPTIONS: [(i32, &str); 2] = [
    (libc::SO_PASSSEC, "SO_PASSSEC"),
    (SO_PASSPIDFD, "SO_PASSPIDFD"),
];
const SO_GET_FILTER: i32 = libc::SO_ATTACH_FILTER;
const SO_PASSRIGHTS: i32 = 83;
const SO_TIMESTAMP_NEW: i32 = 63;
const SO_TIMESTAMPNS_NEW: i32 = 64;
/// Options that make a difference to a unix socket, or that its program may ask for, and what a socket has by itself. `int`, `struct
/// linger` (two), `struct timeval` (two words).
const OPTIONS: [(i32, &[u8]); 19] = [
    (libc::SO_RCVLOWAT, &[1, 0, 0, 0]),
    (libc::SO_PEEK_OFF, &[0xff; 4]),
    (libc::SO_PRIORITY, &[0; 4]),
    (libc::SO_KEEPALIVE, &[0; 4]),
    (libc::SO_OOBINLINE, &[0; 4]),
    (libc::SO_TIMESTAMP, &[0; 4]),
    (libc::SO_TIMESTAMPNS, &[0; 4]),
    // The forms of Linux 5.1. The one with microseconds ends that with nanoseconds, which tells both.
    (SO_TIMESTAMP_NEW, &[0; 4]),
    (SO_TIMESTAMPNS_NEW, &[0; 4]),
    (libc::SO_RXQ_OVFL, &[0; 4]),
    // They do nothing to a unix socket; a program may ask.
    (libc::SO_REUSEADDR, &[0; 4]),
    (libc::SO_BROADCAST, &[0; 4]),
    (libc::SO_DONTROUTE, &[0; 4]),
    (libc::SO_NO_CHECK, &[0; 4]),
    (libc::SO_SELECT_ERR_QUEUE, &[0; 4]),
    (SO_PASSRIGHTS, &[1, 0, 0, 0]),
    (libc::SO_LINGER, &[0; 8]),
    (libc::SO_RCVTIMEO, &[0; 16]),
    (libc::SO_SNDTIMEO, &[0; 16]),
];
/// A unix socket that may be one of a pair, or is not connected.
#[derive(Debug)]
struct End {
    file: usize,
    diag: UnixSocket,
    record: SocketRecord,
}

/// All sockets of the job.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    ends: Vec<End>,
    /// Description → which end it is.
    places: HashMap<usize, usize>,
    /// Description → why it is not an end of a pair within the job.
    others: BTreeMap<usize, String>,
    /// Descriptors may be in flight in them that nobody has looked for: the job runs yet. What seems to lead out of it may lead to these.
    pub(super) unseen: bool,
}

impl Sockets {
    /// Looks at all sockets, and into those that are pairs; descriptors in flight are added to
    /// `open`, and looked at in turn.
    pub(super) fn look_into(
        job: &Survey<'_>,
        shim: Option<&Shim>,
        open: &mut OpenFiles,
        refusals: &mut Refusals,
    ) -> Result<Self, CaptureError> {
        let mut sockets = Sockets::default();
        let mut diags = UnixSockets::for_questions(open.sockets.len());
        let mut next = 0;
        while next < open.files.len() {
            let index = next;
            next += 1;
            let file = &open.files[index];
            if !file.is_socket() {
                continue;
            }
            if shim.is_some_and(|shim| shim.is_stream(file)) {
                // What lies unread in it is an answer that is asked for again.
                sockets.ends.push(End {
                    file: index,
                    diag: UnixSocket {
                        connected: true,
                        ..UnixSocket::default()
                    },
                    record: SocketRecord::closed_stream(),
                });
                continue;
            }
            let end = match examine(file, &mut diags) {
                Ok((diag, record)) => End {
                    file: index,
                    diag,
                    record,
                },
                Err(reason) => {
                    sockets.others.insert(index, reason);
                    continue;
                }
            };
            sockets.ends.push(end);
            if !job.stopped {
                continue;
            }
            let subject = &job.subjects[file.process];
            let label = file.label.clone();
            let process = file.process;
            let Some(end) = sockets.ends.last() else {
                continue;
            };
            let sender = open.socket(end.diag.peer);
            let sender = sender.map(|other| other.duplicate.as_fd());
            let inbox = match messages(file.duplicate.as_fd(), end.record.kind, sender) {
                Ok(inbox) => inbox,
                Err(error) => {
                    let reason =
                        format!("what lies unread in this socket cannot be read ({error})");
                    refusals.add(subject.who(), label, reason);
                    continue;
                }
            };
            if !end.diag.connected && !inbox.messages.is_empty() {
                let reason = "unix socket that is not connected, with messages unread in it, cannot be carried";
                refusals.add(subject.who(), label.as_str(), reason);
            }
            if let Some(fault) = inbox.fault {
                refusals.add(subject.who(), label.as_str(), fault);
            }
            let mut carried = vec![];
            let mut senders = vec![];
            for credentials in &inbox.credentials {
                match sender_of(*credentials, job, subject) {
                    Ok(sender) => senders.push(sender),
                    Err(reason) => refusals.add(subject.who(), label.as_str(), reason),
                }
            }
            for (bytes, descriptors) in inbox.messages {
                let mut message = SocketMessage::default();
                match job.unread.keep(&bytes) {
                    Ok(kept) => message.bytes = kept,
                    Err(error) => {
                        let reason =
                            format!("what lies unread in this socket cannot be kept ({error})");
                        refusals.add(subject.who(), label.as_str(), reason);
                    }
                }
                for descriptor in descriptors {
                    let name = format!("descriptor in flight to {label}");
                    let added = open.add_in_flight(descriptor, process, name);
                    if let Err(error) = &added
                        && error.is_too_long()
                    {
                        let reason = format!("a descriptor in flight in it: {TOO_LONG}");
                        refusals.add(subject.who(), label.as_str(), reason);
                        continue;
                    }
                    match added? {
                        Ok(file) => message.descriptions.push(DescriptionId(file as u32)),
                        Err(error) => {
                            let reason = format!(
                                "a descriptor in flight in it cannot be told apart ({error})"
                            );
                            refusals.add(subject.who(), label.as_str(), reason);
                        }
                    }
                }
                carried.push(message);
            }
            if let Some(end) = sockets.ends.last_mut() {
                end.record.inbox = carried;
                end.record.settings.senders = senders;
            }
        }
        let holds_messages = |end: &End| {
            let found = poll_now(open.files[end.file].duplicate.as_fd(), libc::POLLIN);
            found.is_ok_and(|events| events & libc::POLLIN != 0)
        };
        sockets.unseen = !job.stopped && sockets.ends.iter().any(holds_messages);
        sockets.pair_up(open);
        Ok(sockets)
    }

    /// Finds the other end of each (one that is not connected is its own); ends whose other end is elsewhere lead out.
    fn pair_up(&mut self, open: &OpenFiles) {
        let inode = |file: usize| open.files[file].stat.st_ino;
        let all = self.ends.iter();
        let peers: HashMap<u64, u64> = all.map(|end| (inode(end.file), end.diag.peer)).collect();
        loop {
            let others = self.others.keys();
            let others: HashMap<u64, usize> = others.map(|file| (inode(*file), *file)).collect();
            // A datagram socket may be connected to one that is not, or no longer, connected to it.
            let is_lost = |end: &mut End| {
                let peer = end.diag.peer;
                let may_come = self.unseen && !others.contains_key(&peer);
                peer != 0 && !may_come && peers.get(&peer) != Some(&inode(end.file))
            };
            let lost: Vec<End> = self.ends.extract_if(.., is_lost).collect();
            if lost.is_empty() {
                break;
            }
            for end in lost {
                let reason = match others.get(&end.diag.peer) {
                    Some(other) => format!(
                        "unix socket whose other end, {}, cannot be carried",
                        open.files[*other].label
                    ),
                    None => "unix socket whose other end is not in the job leads out of it".into(),
                };
                self.others.insert(end.file, reason);
            }
        }
        let places = self.ends.iter().enumerate();
        let places: HashMap<u64, usize> = places
            .map(|(place, end)| (inode(end.file), place))
            .collect();
        for (place, end) in self.ends.iter_mut().enumerate() {
            let peer = match end.diag.connected {
                true => places.get(&end.diag.peer).copied(),
                false => Some(place),
            };
            end.record.peer = peer.map(|peer| SocketId(peer as u32));
            self.places.insert(end.file, place);
        }
    }

    /// Description `index`, which is a socket.
    pub(super) fn kind(
        &mut self,
        index: usize,
        job: &Survey<'_>,
        open: &OpenFiles,
        outside: &Outside,
    ) -> Result<DescriptionKind, String> {
        if let Some(place) = self.places.get(&index) {
            return Ok(DescriptionKind::Socket(SocketId(*place as u32)));
        }
        let file = &open.files[index];
        let Some(inherit) = outside.inherit(index) else {
            return Err(self
                .others
                .get(&index)
                .cloned()
                .unwrap_or_else(|| "a socket opened with O_PATH cannot be carried".to_owned()));
        };
        let mut found = external(inherit, &file.name);
        let kind = socket_option(file.duplicate.as_fd(), libc::SO_TYPE).ok();
        if inherit != 0 || kind != Some(libc::SOCK_STREAM) {
            // What would give them back is a pipe, and cannot be written to or keep messages apart.
            if has_unread(file.duplicate.as_fd(), kind) {
                return Err(format!(
                    "{} leads out of the job, and what lies unread in it cannot be carried (only of a stream that is descriptor 0, or of a pipe)",
                    shown::bytes(&file.name)
                ));
            }
        } else {
            let bytes = unread_of_stream(file.duplicate.as_fd());
            let kept = bytes.and_then(|bytes| match job.stopped {
                true => job.unread.keep(&bytes),
                false => Ok(Unread::default()),
            });
            found.unread =
                kept.map_err(|error| format!("what lies unread in it cannot be read ({error})"))?;
        }
        Ok(DescriptionKind::External(found))
    }

    pub(super) fn records(self) -> Vec<SocketRecord> {
        self.ends.into_iter().map(|end| end.record).collect()
    }
}

/// Whether bytes, or messages, wait to be read. Nothing is read for that, not even by MSG_PEEK, which takes an error that waits.
fn has_unread(socket: BorrowedFd<'_>, kind: Option<i32>) -> bool {
    if unread_len(socket).is_ok_and(|bytes| bytes > 0) {
        return true;
    }
    // An empty datagram; at the end of the others they can be read, too.
    let ready = poll_now(socket, libc::POLLIN | libc::POLLRDHUP).unwrap_or(0);
    kind == Some(libc::SOCK_DGRAM) && ready == libc::POLLIN
}

/// A socket that may be one of a pair within the job or is not connected, or why it can be neither.
fn examine(file: &OpenFile, diags: &mut UnixSockets) -> Result<(UnixSocket, SocketRecord), String> {
    let fd = file.duplicate.as_fd();
    let said = |error: io::Error| format!("a socket whose state cannot be read ({error})");
    let option = |option| socket_option(fd, option).map_err(said);
    let domain = option(libc::SO_DOMAIN)?;
    let kind = option(libc::SO_TYPE)?;
    let listening = option(libc::SO_ACCEPTCONN)? != 0;
    let family = family_name(domain, kind, option(libc::SO_PROTOCOL)?);
    let own = address(getsockname::<SockaddrStorage>(fd.as_raw_fd()).ok());
    let peer = address(getpeername::<SockaddrStorage>(fd.as_raw_fd()).ok());
    if listening {
        return Err(match own {
            Some(own) => format!("{family} socket listening at {own} leads out of the job"),
            None => format!("listening {family} socket leads out of the job"),
        });
    }
    match (&own, &peer) {
        (_, Some(peer)) => {
            return Err(format!(
                "{family} socket connected to {peer} leads out of the job"
            ));
        }
        (Some(own), None) => {
            return Err(format!(
                "{family} socket bound to {own} leads out of the job"
            ));
        }
        (None, None) => {}
    }
    if domain != libc::AF_UNIX {
        return Err(format!(
            "{family} socket cannot be carried, though not connected"
        ));
    }
    let diag = diags.get(file.stat.st_ino).map_err(|error| {
        format!("unix socket whose other end the kernel does not tell ({error})")
    })?;
    for (number, name) in FOREIGN_OPTIONS {
        if socket_option(fd, number).is_ok_and(|value| value != 0) {
            return Err(format!("unix socket with {name}, which cannot be carried"));
        }
    }
    // EACCES: it has one that is not in the classic form.
    let filter = socket_option_bytes(fd, SO_GET_FILTER, 0);
    if filter
        .as_ref()
        .is_ok_and(|(_, instructions)| *instructions != 0)
        || filter.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
    {
        return Err("unix socket with a filter (SO_ATTACH_FILTER), which cannot be carried".into());
    }
    let record = SocketRecord {
        kind,
        peer: None,
        inbox: vec![],
        shutdown: diag.shutdown,
        buffers: [
            option(libc::SO_SNDBUF)?.cast_unsigned(),
            option(libc::SO_RCVBUF)?.cast_unsigned(),
        ],
        pass_credentials: option(libc::SO_PASSCRED)? != 0,
        settings: SocketSettings {
            options: options(fd),
            senders: vec![],
        },
    };
    Ok((diag, record))
}

/// The options of [`OPTIONS`] that are not what a socket has by itself. What the kernel does not know is not set.
fn options(fd: BorrowedFd<'_>) -> Vec<(i32, Vec<u8>)> {
    let found = OPTIONS.iter().filter_map(|(option, usual)| {
        let (value, _) = socket_option_bytes(fd, *option, usual.len()).ok()?;
        (value.as_slice() != *usual).then_some((*option, value))
    });
    found.collect()
}

fn family_name(domain: i32, kind: i32, protocol: i32) -> String {
    match (domain, kind, protocol) {
        (libc::AF_UNIX, ..) => "unix".into(),
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP) => "TCP".into(),
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP) => "UDP".into(),
        (libc::AF_INET | libc::AF_INET6, _, protocol) => format!("IP (protocol {protocol})"),
        (libc::AF_NETLINK, ..) => "netlink".into(),
        (libc::AF_PACKET, ..) => "packet".into(),
        (libc::AF_VSOCK, ..) => "vsock".into(),
        (domain, ..) => format!("family {domain}"),
    }
}

/// An address, if it says anything.
fn address(found: Option<SockaddrStorage>) -> Option<String> {
    let found = found?;
    if let Some(unix) = found.as_unix_addr() {
        if let Some(path) = unix.path() {
            return Some(shown::shown(path));
        }
        return unix
            .as_abstract()
            .map(|name| format!("@{}", shown::bytes(name)));
    }
    if let Some(inet) = found.as_sockaddr_in() {
        return (inet.port() != 0).then(|| inet.to_string());
    }
    if let Some(inet) = found.as_sockaddr_in6() {
        return (inet.port() != 0).then(|| inet.to_string());
    }
    (found.family() == Some(nix::sys::socket::AddressFamily::Netlink)).then(|| "the kernel".into())
}

/// Who sent a message: the process that will send it again, with the ids it has then, or nobody.
fn sender_of(
    credentials: Option<[u32; 3]>,
    job: &Survey<'_>,
    receiver: &Subject,
) -> Result<Option<Sender>, String> {
    let Some([pid, user, group]) = credentials else {
        return Ok(None);
    };
    // It was sent when nobody wanted to know.
    if pid == 0 {
        return Ok(None);
    }
    let found = job
        .subjects
        .iter()
        .find(|subject| i32::try_from(pid) == Ok(subject.tgid));
    let Some(known) = found.and_then(|subject| job.ids.task(subject.tgid)) else {
        return Err(format!(
            "a message unread in it names process {pid} as its sender (SCM_CREDENTIALS), which is not of the job or has ended"
        ));
    };
    let now = [receiver.status.uids[0], receiver.status.gids[0]];
    if [user, group] != now {
        return Err(format!(
            "a message unread in it names user {user} and group {group} as its sender (SCM_CREDENTIALS), which the job no longer has"
        ));
    }
    Ok(Some(Sender { pid: known }))
}
