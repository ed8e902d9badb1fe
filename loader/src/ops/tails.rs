//! What stands behind the fields of an operation, taken apart: strings, contents, tables.
//!
//! ```text
//! OpsList::read --check--> every tail fits its operation
//! loader        --read---> CallTail, InodeTail ... when the operation's turn has come
//! ```
//! # What callers may rely on
//! Whatever the bytes, reading gives an error and never panics; what it gives lies in the tail. A list that
//! [`super::OpsList::read`] believes has no tail that cannot be read: nothing is made before that is known.
//!
//! # What it does not do
//! It does not know whether a call makes sense, nor how much of its data the kernel reads.

use super::{
    AnyOp, Call, Enforce, Exec, Expect, InProgress, Inode, Send, TimerCreate, Vdso, VdsoPiece,
    VdsoSymbol, check, timeout, word,
};
use crate::layout::HASH_LEN;
use crate::processor::handler::HANDLER_LEN;
use crate::xstate::Xstate;
use core::ffi::CStr;
use core::ops::Range;

/// Why a tail cannot be read.
pub type Unfit = &'static str;

/// Most descriptors in one message (`SCM_MAX_FD`, unix(7)).
pub const MOST_SENT: u64 = 253;
/// Bytes of `struct sigevent`.
pub const SIGEVENT_LEN: usize = 64;
/// Bytes of `struct termios2`.
pub const TERMIOS_LEN: usize = 44;
/// `fcntl(2)` and its command that takes a `struct f_owner_ex`.
const FCNTL: u64 = 72;
const F_SETOWN_EX: u64 = 15;

/// Whether an operation's tail can be read, and its numbers that stand for something do.
///
/// # Errors
/// What is wrong.
pub(super) fn check(op: &AnyOp, tail: &[u8]) -> Result<(), Unfit> {
    match op {
        AnyOp::Call(op) => CallTail::read(op, tail).map(drop),
        AnyOp::Inode(op) => InodeTail::read(op, tail).map(drop),
        AnyOp::Open(_)
        | AnyOp::Inherit(_)
        | AnyOp::Watch(_)
        | AnyOp::CutBack(_)
        | AnyOp::Device(_)
        | AnyOp::Refill(_) => text(tail).map(drop),
        AnyOp::FillInode(op) => inode_number(op.inode).and(nothing(tail)),
        AnyOp::Send(op) => SendTail::read(op, tail).map(drop),
        AnyOp::Vdso(op) => VdsoTail::read(op, tail).map(drop),
        AnyOp::TimerCreate(op) => SigEvent::read(op, tail).map(drop),
        AnyOp::InProgress(op) => check_timeout(op).and(nothing(tail)),
        AnyOp::Registers(_) => registers(tail).map(drop),
        AnyOp::Exec(op) => ExecTail::read(op, tail).map(drop),
        AnyOp::Terminal(_) => settings(tail).map(drop),
        AnyOp::Enforce(op) => handler(op, tail).map(drop),
        // The kernel judges the auxiliary vector.
        AnyOp::MmMap(_) => Ok(()),
        AnyOp::UnmapAll(_)
        | AnyOp::Fill(_)
        | AnyOp::SpawnThreads(_)
        | AnyOp::Stopped(_)
        | AnyOp::Ended(_)
        | AnyOp::Feed(_)
        | AnyOp::Pipe(_)
        | AnyOp::SocketPair(_)
        | AnyOp::OwnId(_)
        | AnyOp::Fired(_) => nothing(tail),
    }
}

fn nothing(tail: &[u8]) -> Result<(), Unfit> {
    match tail {
        [] => Ok(()),
        _ => Err("bytes behind an operation that has none"),
    }
}

/// A path or description.
///
/// # Errors
/// When it has no end.
pub fn text(tail: &[u8]) -> Result<&CStr, Unfit> {
    CStr::from_bytes_until_nul(tail).map_err(|_| "a string without an end")
}

/// What is behind a string.
fn behind<'a>(text: &CStr, tail: &'a [u8]) -> &'a [u8] {
    tail.get(text.count_bytes() + 1..).unwrap_or(&[])
}

fn inode_number(inode: u64) -> Result<(), Unfit> {
    match u32::try_from(inode) {
        Ok(_) => Ok(()),
        Err(_) => Err("an inode of an impossible number"),
    }
}

/// The tail of a [`Call`].
#[derive(Clone, Copy, Debug)]
pub struct CallTail<'a> {
    /// What the call restores.
    pub label: &'a CStr,
    data: &'a [u8],
}

impl<'a> CallTail<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// When it has no label, an argument points outside, or nobody knows what is expected.
    pub fn read(op: &Call, tail: &'a [u8]) -> Result<Self, Unfit> {
        let label = text(tail).map_err(|_| "a call without label")?;
        let data = (label.count_bytes() + 1).next_multiple_of(8);
        let data = tail.get(data..).unwrap_or(&[]);
        let found = CallTail { label, data };
        if Expect::from_number(op.expect).is_none() {
            return Err("a call of which is expected what nobody knows");
        }
        let args = [op.a0, op.a1, op.a2, op.a3, op.a4, op.a5];
        for (index, argument) in args.into_iter().enumerate() {
            if op.pointers & 1 << index != 0 && found.pointed(argument).is_none() {
                return Err("an argument of a call points outside its record");
            }
        }
        if found.names_owner(op) && found.owner(op).is_none() {
            return Err("an owner cut short");
        }
        Ok(found)
    }

    /// What an argument points to, with all that is behind it; never nothing.
    #[must_use]
    pub fn pointed(&self, argument: u64) -> Option<&'a [u8]> {
        let from = self.data.get(usize::try_from(argument).ok()?..)?;
        (!from.is_empty()).then_some(from)
    }

    fn names_owner(&self, op: &Call) -> bool {
        op.nr == FCNTL && op.a1 == F_SETOWN_EX && op.pointers & 1 << 2 != 0
    }

    /// Kind and id of a `struct f_owner_ex`, if that is what the call has (`F_SETOWN_EX`, fcntl(2)).
    #[must_use]
    pub fn owner(&self, op: &Call) -> Option<[u32; 2]> {
        let owner = self.pointed(op.a2).filter(|_| self.names_owner(op))?;
        let (words, _) = owner.first_chunk::<8>()?.as_chunks::<4>();
        Some([u32::from_le_bytes(words[0]), u32::from_le_bytes(words[1])])
    }
}

/// The tail of an [`Inode`].
#[derive(Clone, Copy, Debug)]
pub struct InodeTail<'a> {
    /// BLAKE3 of what [`Inode::check`] says.
    pub hash: &'a [u8; HASH_LEN],
    /// Where it was.
    pub path: &'a CStr,
}

impl<'a> InodeTail<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// When it is too short, or nobody knows how the file is compared.
    pub fn read(op: &Inode, tail: &'a [u8]) -> Result<Self, Unfit> {
        inode_number(op.inode)?;
        if op.check > check::SIZE {
            return Err("a file that is compared as nobody knows");
        }
        let split = tail.split_first_chunk();
        let (hash, path) = split.ok_or("Inode does not fit its record")?;
        let path = text(path)?;
        Ok(InodeTail { hash, path })
    }
}

/// The tail of a [`Send`].
#[derive(Clone, Copy, Debug)]
pub struct SendTail<'a> {
    slots: &'a [u8],
    /// The socket's name, for messages.
    pub socket: &'a CStr,
}

impl<'a> SendTail<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// When it is too short, or no message has so many descriptors.
    pub fn read(op: &Send, tail: &'a [u8]) -> Result<Self, Unfit> {
        const UNFIT: Unfit = "Send does not fit its record";
        if op.fds > MOST_SENT {
            return Err("a message of more descriptors than one may have");
        }
        let (slots, rest) = tail.split_at_checked(op.fds as usize * 8).ok_or(UNFIT)?;
        Ok(SendTail {
            slots,
            socket: text(rest)?,
        })
    }

    /// The slots of what is sent with it.
    pub fn slots(&self) -> impl Iterator<Item = u64> + use<'a> {
        let (slots, _) = self.slots.as_chunks::<8>();
        slots.iter().map(|slot| u64::from_le_bytes(*slot))
    }
}

/// The symbols of a vDSO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Symbols<'a>(&'a [u8]);

impl<'a> Symbols<'a> {
    /// Those that [`Symbols::bytes`] has given.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Symbols(bytes)
    }

    /// As stored.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// One after another.
    pub fn iter(&self) -> impl Iterator<Item = VdsoSymbol> + use<'a> {
        let symbols = self.0.chunks_exact(VdsoSymbol::BYTES);
        symbols.filter_map(VdsoSymbol::decode)
    }

    /// Whether an address is inside one of the functions, behind its first byte.
    #[must_use]
    pub fn has_inside(&self, address: u64) -> bool {
        self.iter().any(|symbol| {
            let inside = address.checked_sub(symbol.address);
            inside.is_some_and(|inside| inside > 0 && inside < symbol.len)
        })
    }
}

/// The tail of a [`Vdso`].
#[derive(Clone, Copy, Debug)]
pub struct VdsoTail<'a> {
    pieces: &'a [u8],
    /// Its functions.
    pub symbols: Symbols<'a>,
}

/// Where the text and the data of an old vDSO were: one piece, the data below the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldPlace {
    /// The data.
    pub data: Range<u64>,
    /// The text, from where the data ends.
    pub text: Range<u64>,
}

impl<'a> VdsoTail<'a> {
    /// Kind of the text among [`VdsoPiece`]s.
    pub const TEXT: u64 = 3;

    /// Reads it.
    ///
    /// # Errors
    /// When it is too short, or a piece reaches around the end of all addresses.
    pub fn read(op: &Vdso, tail: &'a [u8]) -> Result<Self, Unfit> {
        const UNFIT: Unfit = "Vdso does not fit its record";
        let bytes = |count: u64, each: usize| usize::try_from(count).ok()?.checked_mul(each);
        let pieces = bytes(op.pieces, VdsoPiece::BYTES).ok_or(UNFIT)?;
        let symbols = bytes(op.symbols, VdsoSymbol::BYTES).ok_or(UNFIT)?;
        let (pieces, rest) = tail.split_at_checked(pieces).ok_or(UNFIT)?;
        let symbols = Symbols(rest.get(..symbols).ok_or(UNFIT)?);
        let found = VdsoTail { pieces, symbols };
        let ends = |piece: VdsoPiece| piece.start.checked_add(piece.len).is_some();
        if !found.pieces().all(ends) {
            return Err("a piece of the vDSO that has no end");
        }
        Ok(found)
    }

    /// Its pieces.
    pub fn pieces(&self) -> impl Iterator<Item = VdsoPiece> + use<'a> {
        let pieces = self.pieces.chunks_exact(VdsoPiece::BYTES);
        pieces.filter_map(VdsoPiece::decode)
    }

    /// The text, if there is one.
    #[must_use]
    pub fn text(&self) -> Option<Range<u64>> {
        let piece = self.pieces().find(|piece| piece.kind == Self::TEXT)?;
        Some(piece.start..piece.start.saturating_add(piece.len))
    }

    /// Where it was, if its pieces lie side by side, the text last, and data and text are no longer than `longest` each.
    #[must_use]
    pub fn place(&self, longest: u64) -> Option<OldPlace> {
        let text = self.text()?;
        let lowest = self.pieces().map(|piece| piece.start).min()?;
        let data = lowest..text.start;
        let mut covered = 0u64;
        for piece in self.pieces() {
            let end = piece.start.checked_add(piece.len)?;
            if piece.start < lowest || end > text.end {
                return None;
            }
            covered = covered.checked_add(piece.len)?;
        }
        let fits = |range: &Range<u64>| range.end - range.start <= longest;
        // Side by side: they cover all, and none lies on another, which the kernel does not allow.
        let all = covered == text.end - lowest;
        (all && fits(&data) && fits(&text)).then_some(OldPlace { data, text })
    }
}

/// `struct sigevent` ([`TimerCreate`]).
#[derive(Clone, Copy, Debug)]
pub struct SigEvent<'a>(pub &'a [u8; SIGEVENT_LEN]);

impl<'a> SigEvent<'a> {
    /// Where the thread's id is.
    pub const THREAD_AT: Range<usize> = 16..20;

    /// Reads it.
    ///
    /// # Errors
    /// When it is too short.
    pub fn read(_op: &TimerCreate, tail: &'a [u8]) -> Result<Self, Unfit> {
        let event = tail.first_chunk();
        event.map(Self).ok_or("TimerCreate does not fit its record")
    }

    /// The thread that is told (`SIGEV_THREAD_ID`), if it is one.
    #[must_use]
    pub fn thread(&self) -> Option<u32> {
        const SIGEV_THREAD_ID: u32 = 4;
        let (words, _) = self.0.as_chunks::<4>();
        let [notify, thread] = [3, 4].map(|at: usize| u32::from_le_bytes(words[at]));
        (notify & SIGEV_THREAD_ID != 0).then_some(thread)
    }
}

fn check_timeout(op: &InProgress) -> Result<(), Unfit> {
    match op.timeout_in {
        timeout::NONE | timeout::MILLISECONDS | timeout::TIMESPEC => Ok(()),
        _ => Err("a time-out that is taken as nobody knows"),
    }
}

/// The register set of [`super::Registers`].
///
/// # Errors
/// When it is cut short.
pub fn registers(tail: &[u8]) -> Result<Xstate<'_>, Unfit> {
    Xstate::of(tail).ok_or("registers cut short")
}

/// The auxiliary vector of [`super::MmMap`]: whole entries.
#[must_use]
pub fn auxiliary_vector(tail: &[u8]) -> &[u8] {
    tail.as_chunks::<16>().0.as_flattened()
}

/// The tail of an [`Exec`].
#[derive(Clone, Copy, Debug)]
pub struct ExecTail<'a> {
    limits: &'a [u8],
    /// The program.
    pub path: &'a CStr,
    strings: &'a [u8],
    args: usize,
    envs: usize,
}

impl<'a> ExecTail<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// When it has fewer limits or strings than the operation says.
    pub fn read(op: &Exec, tail: &'a [u8]) -> Result<Self, Unfit> {
        const UNFIT: Unfit = "Exec does not fit its record";
        let number = |number: u64| usize::try_from(number).map_err(|_| UNFIT);
        let limits = number(op.limits)?.checked_mul(24).ok_or(UNFIT)?;
        let (limits, tail) = tail.split_at_checked(limits).ok_or(UNFIT)?;
        let path = text(tail).map_err(|_| UNFIT)?;
        let found = ExecTail {
            limits,
            path,
            strings: behind(path, tail),
            args: number(op.args)?,
            envs: number(op.envs)?,
        };
        let wanted = found.args.checked_add(found.envs).ok_or(UNFIT)?;
        // No string is shorter than its end.
        if wanted > found.strings.len() || found.strings().count() != wanted {
            return Err(UNFIT);
        }
        Ok(found)
    }

    /// `getrlimit(2)`: number, soft, hard.
    pub fn limits(&self) -> impl Iterator<Item = [u64; 3]> + use<'a> {
        let (limits, _) = self.limits.as_chunks::<24>();
        let number = |limit: &[u8; 24], at| word(limit, at).unwrap_or(0);
        limits
            .iter()
            .map(move |limit| [0, 8, 16].map(|at| number(limit, at)))
    }

    fn strings(&self) -> impl Iterator<Item = &'a CStr> + use<'a> {
        let mut left = self.strings;
        let all = core::iter::from_fn(move || {
            let string = text(left).ok()?;
            left = behind(string, left);
            Some(string)
        });
        all.take(self.args.saturating_add(self.envs))
    }

    /// How many arguments and strings of the environment there are.
    #[must_use]
    pub fn counts(&self) -> [usize; 2] {
        [self.args, self.envs]
    }

    /// The arguments.
    pub fn args(&self) -> impl Iterator<Item = &'a CStr> + use<'a> {
        self.strings().take(self.args)
    }

    /// The environment.
    pub fn envs(&self) -> impl Iterator<Item = &'a CStr> + use<'a> {
        self.strings().skip(self.args)
    }
}

/// The settings of a [`super::Terminal`].
///
/// # Errors
/// When they are cut short.
pub fn settings(tail: &[u8]) -> Result<&[u8; TERMIOS_LEN], Unfit> {
    tail.first_chunk().ok_or("Terminal does not fit its record")
}

/// The pages of an [`Enforce`].
///
/// # Errors
/// When they are cut short, or the place of PKRU is none of a register set.
pub fn handler<'a>(op: &Enforce, tail: &'a [u8]) -> Result<&'a [u8; HANDLER_LEN], Unfit> {
    if op.pkru_at > Xstate::MOST as u64 {
        return Err("PKRU outside any register set");
    }
    tail.first_chunk().ok_or("Enforce does not fit its record")
}

#[cfg(test)]
mod tests;
