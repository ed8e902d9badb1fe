//! What the current directory is called, as the shadow told last (getcwd(2)): believed for a second, unless the job has changed names.

use super::process;
use super::sys;
use crate::remembered::{Asked, BELIEVED_MS};
use crate::sequenced::{Sequenced, bytes_of, words_of};
use core::sync::atomic::Ordering;

/// Words of the longest name that is remembered.
const NAME_WORDS: usize = 64;
/// Its bytes.
pub(super) const LONGEST: usize = 8 * NAME_WORDS;
/// Where what is.
const HANDLE: usize = 0;
const MS: usize = 1;
const NAMES: usize = 2;
const LEN: usize = 3;
const NAME: usize = 4;

static HERE: Sequenced<{ NAME + NAME_WORDS }> = Sequenced::nothing();

/// The name of what is open by this handle, if it is known; `room` is for it.
pub(super) fn name(handle: u64, room: &mut [u8; LONGEST]) -> Option<&[u8]> {
    let names = process::table()?.versions.now(0).names();
    let now = sys::milliseconds();
    let len = HERE.read(|words| {
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        let believed =
            (get(HANDLE), get(NAMES)) == (handle, names) && now.wrapping_sub(get(MS)) < BELIEVED_MS;
        bytes_of(&words[NAME..], room);
        believed.then(|| get(LEN) as usize)
    })?;
    room.get(..len)
}

/// The shadow has told it.
pub(super) fn learn(handle: u64, name: &[u8], asked: Option<Asked>) {
    let (Some(table), Some(asked)) = (process::table(), asked) else {
        return;
    };
    let now = table.versions.now(0);
    if name.len() > LONGEST || !now.is(&asked.any) || !process::is_own() {
        return;
    }
    let head = [handle, asked.ms, now.names(), name.len() as u64];
    HERE.write(head.into_iter().chain(words_of(name)));
}
