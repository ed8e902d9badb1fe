//! FIFOs and sockets whose names are at the shadow: what they are called in the folder where a job has them.
//!
//! | name in the folder | what it is |
//! |---|---|
//! | `f` and the [`Key`] | a FIFO |
//! | `s` and the key | a socket, once it is bound |
//! | `a` and the key | a link that tells the FIFO's mode and owner |
//! | `b` and 16 digits | what a socket is bound to, until it is called `s…` |
//! | `n` and the same digits | a link that tells what the program calls that |
//!
//! The folder is of a file system in memory that is mounted nowhere: only descriptors lead to it, which the job's processes inherit, and
//! it is gone with the last of them.

use crate::table::Reserved;

/// How the names of what is in the folder begin, where a name is needed (bind(2)). `/proc/self` is empty when the first thread has ended.
pub const FOLDER: &[u8] = b"/proc/thread-self/fd/1011/";
/// Digits of a key.
pub const KEY_LEN: usize = 56;
/// Digits of a name that nothing else has.
pub const ID_LEN: usize = 16;

const _: () = assert!(Reserved::Nodes.number() == 1011);

/// Which file of the shadow's something is. Inode numbers are given again; with the time of its beginning a file is told from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Device.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// When it began, where its file system knows that: seconds and nanoseconds.
    pub born: (i64, u32),
}

impl Key {
    /// Its digits.
    #[must_use]
    pub fn digits(&self) -> [u8; KEY_LEN] {
        let mut all = [0; KEY_LEN];
        let (device, rest) = all.split_at_mut(16);
        let (inode, rest) = rest.split_at_mut(16);
        let (seconds, nanoseconds) = rest.split_at_mut(16);
        put_digits(self.device, device);
        put_digits(self.inode, inode);
        put_digits(self.born.0.cast_unsigned(), seconds);
        put_digits(self.born.1.into(), nanoseconds);
        all
    }

    /// The key with these digits.
    #[must_use]
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let digits: &[u8; KEY_LEN] = digits.try_into().ok()?;
        let (device, rest) = digits.split_at(16);
        let (inode, rest) = rest.split_at(16);
        let (seconds, nanoseconds) = rest.split_at(16);
        Some(Key {
            device: parse_digits(device)?,
            inode: parse_digits(inode)?,
            born: (
                parse_digits(seconds)?.cast_signed(),
                u32::try_from(parse_digits(nanoseconds)?).ok()?,
            ),
        })
    }
}

/// Writes a number into as many hexadecimal digits as there is room for.
pub fn put_digits(number: u64, room: &mut [u8]) {
    let mut rest = number;
    for place in room.iter_mut().rev() {
        *place = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
}

/// The number that these are the hexadecimal digits of.
#[must_use]
pub fn parse_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| {
        let value = (*digit as char).to_digit(16)?;
        Some(number << 4 | u64::from(value))
    })
}

/// Which file's FIFO this is; `name` as `/proc` tells it, where what is mounted nowhere begins with a slash.
#[must_use]
pub fn fifo(name: &[u8]) -> Option<Key> {
    Key::parse(name.strip_prefix(b"/f")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_other_names_are_none() {
        let key = Key {
            device: 0xfe01,
            inode: u64::MAX,
            born: (-2, 999_999_999),
        };
        let name = [b"/f".as_slice(), &key.digits()].concat();
        assert_eq!(fifo(&name), Some(key));
        let longer = [name.as_slice(), b"0"].concat();
        for other in [&name[..57], &name[1..], &longer, b"/fifo", b"pipe:[1234]"] {
            assert_eq!(fifo(other), None, "{other:?}");
        }
        let mut none = name.clone();
        none[20] = b'g';
        assert_eq!(fifo(&none), None);
    }
}
