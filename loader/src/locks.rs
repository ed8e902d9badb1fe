//! Locks of C libraries that are held and name their holder by its id.
//!
//! Where ids are new after a restart, such a lock belongs to nobody any more: who holds it cannot unlock it, or waits for
//! itself. They are known by what they look like in memory: there is no list of them.
//!
//! # What it does not do
//! Locks that nobody asks whose they are (normal, adaptive) are none of these, nor are those of other libraries.

/// How many words of 4 bytes a lock has.
pub const WORDS: usize = 10;
/// Tells the id that a held lock names.
pub type Names = fn(&[u32; WORDS]) -> Option<u32>;

/// All kinds, and in which word each has the id.
pub const KINDS: [(Names, usize); 3] = [(of_glibc, 2), (of_glibc_writer, 6), (of_musl, 1)];

/// Bits of a word that the kernel reads (futex(2)): the id, without FUTEX_WAITERS and FUTEX_OWNER_DIED.
const ID: u32 = 0x3fff_ffff;

/// The id that a held `pthread_mutex_t` of glibc names, if it is asked whose it is: recursive, error checking, or with
/// priority inheritance (sysdeps/x86/nptl/bits/struct_mutex.h: lock, count, owner, users, kind, spins, list). Robust ones are in a list
/// that the kernel knows.
#[must_use]
pub fn of_glibc(words: &[u32; WORDS]) -> Option<u32> {
    const INHERITS: u32 = 32;
    const PROTECTS: u32 = 64;
    /// Type, protocol, shared, elision.
    const KINDS: u32 = 3 | INHERITS | PROTECTS | 128 | 256 | 512;
    let [lock, count, owner, users, kind, rest @ ..] = *words;
    let lock = match kind & PROTECTS {
        0 => lock,
        // The ceiling stands above it.
        _ => lock & 0x7_ffff,
    };
    let (recursive, checking) = (kind & 3 == 1, kind & 3 == 2);
    let held = match kind & INHERITS {
        0 => (recursive || checking) && matches!(lock, 1 | 2),
        _ => lock & ID == owner,
    };
    // With a protocol it is counted once, recursive or not.
    let counted = if recursive { count != 0 } else { count <= 1 };
    let sound = owner != 0 && kind & !KINDS == 0 && (1..1 << 16).contains(&users);
    (sound && held && counted && rest == [0; 5]).then_some(owner)
}

/// The id that a `pthread_rwlock_t` of glibc names whom one writes with (sysdeps/nptl/bits/struct_rwlock.h: readers, writers, two
/// words that are waited for, two of padding, writer, shared): who unlocks it is asked whether he is that.
#[must_use]
pub fn of_glibc_writer(words: &[u32; WORDS]) -> Option<u32> {
    const WRITING: u32 = 3;
    let [
        readers,
        _,
        phase,
        writing,
        first,
        second,
        writer,
        shared,
        rest @ ..,
    ] = *words;
    let sound = [first, second] == [0; 2] && shared <= 1 && rest == [0; 2];
    let waited_for = [phase, writing].iter().all(|word| matches!(word, 1 | 3));
    let held = readers & WRITING == WRITING && waited_for;
    (sound && held && writer != 0).then_some(writer)
}

/// The same for one of musl (src/internal/pthread_impl.h: type, lock, waiters, then previous, next), where all but
/// normal ones name their holder and are in its list.
#[must_use]
pub fn of_musl(words: &[u32; WORDS]) -> Option<u32> {
    const TYPES: u32 = 0x8f;
    let [kind, lock, _, _, _, _, previous @ .., next_low, next_high] = *words;
    // Where programs and what the kernel maps lie, and no small numbers.
    let pointer = |low: u32, high: u32| {
        let lies = (high == 0 && low >= 0x1_0000) || (0x1000..0x8000).contains(&high);
        lies && low.is_multiple_of(8)
    };
    let typed = kind & 0xf != 0 && kind & !TYPES == 0;
    let listed = pointer(previous[0], previous[1]) && pointer(next_low, next_high);
    (typed && listed && lock & ID != 0).then_some(lock & ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_locks_that_name_a_thread_are_known() {
        let recursive = [1, 3, 77, 1, 1, 0, 0, 0, 0, 0];
        assert_eq!(of_glibc(&recursive), Some(77));
        let checking = [2, 0, 77, 1, 2, 0, 0, 0, 0, 0];
        assert_eq!(of_glibc(&checking), Some(77));
        let inheriting = [77 | 1 << 31, 1, 77, 1, 32, 0, 0, 0, 0, 0];
        assert_eq!(of_glibc(&inheriting), Some(77));
        let protecting = [5 << 19 | 1, 0, 77, 1, 64 | 2, 0, 0, 0, 0, 0];
        assert_eq!(of_glibc(&protecting), Some(77));
        let written = [3, 0, 1, 1, 0, 0, 77, 0, 0, 0];
        assert_eq!(of_glibc_writer(&written), Some(77));
        let of_musls = [1, 77, 0, 0, 0, 2, 0x1008, 0x7fff, 0x40_2008, 0];
        assert_eq!(of_musl(&of_musls), Some(77));
    }

    #[test]
    fn what_nobody_asks_whose_it_is_does_not_matter() {
        for kind in [0, 3, 128, 256] {
            let held = [1, 0, 77, 1, kind, 0, 0, 0, 0, 0];
            assert_eq!(of_glibc(&held), None, "kind {kind}");
        }
        let free = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(of_glibc(&free), None);
        let numbers = [1, 1, 77, 1, 1, 1, 77, 1, 1, 1];
        assert_eq!((of_glibc(&numbers), of_musl(&numbers)), (None, None));
        assert_eq!(of_musl(&[1, 77, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    /// Ids are small numbers where they are new after a restart.
    #[test]
    fn small_numbers_are_not_taken_for_locks() {
        let mut state = 1u64;
        let mut small = |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as u32 % below as u32
        };
        for below in [16, 256] {
            let data: Vec<u32> = (0..400_000).map(|_| small(below)).collect();
            for words in data.windows(WORDS).step_by(2) {
                let words: &[u32; WORDS] = words.try_into().expect("as many");
                let found = KINDS.map(|(names, _)| names(words));
                assert_eq!(found, [None; 3], "{words:?}");
            }
        }
    }
}
