//! Where the shadow is, and by what a process proves that it belongs to the job: a small memory file that all processes of a job
//! inherit. It is not part of an image: whoever restarts a job makes a new one ([`crate::table::Reserved::Link`]).

use core::mem::offset_of;

/// What `/proc` calls the descriptor that says it.
pub const LINK_NAME: &[u8] = b"/memfd:wf-link (deleted)";

/// Begins it.
pub const MAGIC: u64 = u64::from_le_bytes(*b"wf-link\0");
/// Of this layout.
pub const VERSION: u32 = 1;
/// Bytes of it.
pub const LINK_LEN: usize = size_of::<Link>();
/// Longest name of a socket, with a NUL behind it (unix(7)).
pub const SOCKET_LEN: usize = 108;

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Link {
    magic: u64,
    version: u32,
    /// Bytes of `socket`.
    pub socket_len: u32,
    /// Proves that a process belongs to the job.
    pub token: [u8; 32],
    /// At the shadow.
    pub session: u64,
    /// Another in each copy of the job: descriptors that other kernels knew must be made known anew.
    pub generation: u64,
    /// How long calls wait for a shadow that is gone, in milliseconds.
    pub lease_ms: u64,
    /// Name of the shadow's socket, zeros behind it.
    pub socket: [u8; SOCKET_LEN],
    /// Not zero: what this machine sees, too, is read here; what the shadow's folders are called here stands at [`MOUNTS_AT`].
    pub reads_here: u32,
    /// Which copy of the job this is; 0, where that is not known. Not there for a shim of before it.
    pub incarnation: u64,
}

/// Where in the same file what the shadow's folders are called is ([`crate::rules::Rules`]).
pub const MOUNTS_AT: u64 = 4096;

impl Link {
    /// None if the name is too long.
    #[must_use]
    pub fn new(
        token: &[u8; 32],
        session: u64,
        generation: u64,
        lease_ms: u64,
        socket: &[u8],
    ) -> Option<Self> {
        let mut name = [0; SOCKET_LEN];
        if socket.len() >= SOCKET_LEN {
            return None;
        }
        name[..socket.len()].copy_from_slice(socket);
        Some(Link {
            magic: MAGIC,
            version: VERSION,
            socket_len: socket.len() as u32,
            token: *token,
            session,
            generation,
            lease_ms,
            socket: name,
            reads_here: 0,
            incarnation: 0,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; LINK_LEN] {
        let mut bytes = [0; LINK_LEN];
        let fields: [(usize, &[u8]); 10] = [
            (offset_of!(Link, magic), &self.magic.to_le_bytes()),
            (offset_of!(Link, version), &self.version.to_le_bytes()),
            (offset_of!(Link, socket_len), &self.socket_len.to_le_bytes()),
            (offset_of!(Link, token), &self.token),
            (offset_of!(Link, session), &self.session.to_le_bytes()),
            (offset_of!(Link, generation), &self.generation.to_le_bytes()),
            (offset_of!(Link, lease_ms), &self.lease_ms.to_le_bytes()),
            (offset_of!(Link, socket), &self.socket),
            (offset_of!(Link, reads_here), &self.reads_here.to_le_bytes()),
            (
                offset_of!(Link, incarnation),
                &self.incarnation.to_le_bytes(),
            ),
        ];
        for (at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    /// What the bytes say; none if they are not of this version.
    #[must_use]
    pub fn read(bytes: &[u8; LINK_LEN]) -> Option<Self> {
        let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..at + 8)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..at + 4)?.first_chunk()?));
        let token = bytes.get(offset_of!(Link, token)..)?.first_chunk()?;
        let socket = bytes.get(offset_of!(Link, socket)..)?.first_chunk()?;
        let link = Link {
            magic: long(offset_of!(Link, magic))?,
            version: word(offset_of!(Link, version))?,
            socket_len: word(offset_of!(Link, socket_len))?,
            token: *token,
            session: long(offset_of!(Link, session))?,
            generation: long(offset_of!(Link, generation))?,
            lease_ms: long(offset_of!(Link, lease_ms))?,
            socket: *socket,
            reads_here: word(offset_of!(Link, reads_here))?,
            incarnation: long(offset_of!(Link, incarnation))?,
        };
        let known = link.magic == MAGIC && link.version == VERSION;
        (known && (link.socket_len as usize) < SOCKET_LEN).then_some(link)
    }

    /// Name of the shadow's socket.
    #[must_use]
    pub fn socket_name(&self) -> &[u8] {
        self.socket
            .get(..self.socket_len as usize)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_read_back_and_others_do_not() {
        let mut link = Link::new(&[3; 32], 7, 9, 2_400_000, b"/run/shadow").expect("fits");
        link.incarnation = 11;
        let bytes = link.bytes();
        assert_eq!(Link::read(&bytes), Some(link));
        assert_eq!(link.socket_name(), b"/run/shadow");
        for at in [0, 8, 13] {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(Link::read(&other), None, "byte {at}");
        }
        assert!(Link::new(&[3; 32], 7, 9, 0, &[b'x'; 108]).is_none());
    }
}
