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
pub type Names = fn(&Place<'_>) -> Option<u32>;

/// Where a lock may be.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Its words.
    pub words: &'a [u32; WORDS],
    /// Its address.
    pub at: u64,
    /// How many threads there are that may use it, if it is not shared with other processes.
    pub threads: u32,
    /// What pointer, or number, is at an address; none where nothing is known to be.
    pub memory: &'a dyn Fn(u64) -> Option<u64>,
    /// Whether at least so many words of the memory are this address.
    pub pointers: &'a dyn Fn(u64, u32) -> bool,
}

/// All kinds of glibc, and in which word each has the id.
pub const OF_GLIBC: [(Names, usize); 2] = [(of_glibc, 2), (of_glibc_writer, 6)];
/// The same of musl.
pub const OF_MUSL: [(Names, usize); 1] = [(of_musl, 1)];
/// Where musl has a thread's id, counted from the thread's descriptor, which fs leads to (src/internal/pthread_impl.h).
pub const ID_OF_MUSL: u64 = 48;

/// Bits of a word that the kernel reads (futex(2)): the id, without FUTEX_WAITERS and FUTEX_OWNER_DIED.
const ID: u32 = 0x3fff_ffff;
/// More threads do not share a lock between processes.
const SHARING: u32 = 1 << 16;

/// The id that a held `pthread_mutex_t` of glibc names, if it is asked whose it is: recursive, error checking, or with
/// priority inheritance (sysdeps/x86/nptl/bits/struct_mutex.h: lock, count, owner, users, kind, spins, list). Robust ones are in a list
/// that the kernel knows.
#[must_use]
pub fn of_glibc(place: &Place<'_>) -> Option<u32> {
    const INHERITS: u32 = 32;
    const PROTECTS: u32 = 64;
    const SHARED: u32 = 128;
    /// Type, protocol, shared, elision.
    const KINDS: u32 = 3 | INHERITS | PROTECTS | SHARED | 256 | 512;
    let [lock, count, owner, users, kind, rest @ ..] = *place.words;
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
    let most = if kind & SHARED == 0 {
        place.threads
    } else {
        SHARING
    };
    let sound = owner != 0 && kind & !KINDS == 0 && (1..=most).contains(&users);
    if !(sound && held && counted && rest == [0; 5]) {
        return None;
    }
    // Who holds it, and who waits for a condition with it: each of those has its address on the stack (nptl/pthread_cond_wait.c, what is
    // left to be done if the thread is cancelled).
    let waits = kind & SHARED == 0 && users > 1;
    (!waits || (place.pointers)(place.at, users - 1)).then_some(owner)
}

/// The id that a `pthread_rwlock_t` of glibc names whom one writes with (sysdeps/nptl/bits/struct_rwlock.h: readers, writers, two
/// words that are waited for, two of padding, writer, shared): who unlocks it is asked whether he is that.
#[must_use]
pub fn of_glibc_writer(place: &Place<'_>) -> Option<u32> {
    const WRITING: u32 = 3;
    /// Readers are counted above what is said of the lock.
    const READERS: u32 = 3;
    const HANDED_OVER: u32 = 1 << 31;
    let [
        readers,
        writers,
        phase,
        writing,
        first,
        second,
        writer,
        shared,
        rest @ ..,
    ] = *place.words;
    let sound = [first, second] == [0; 2] && shared <= 1 && rest == [0; 2];
    let waited_for = [phase, writing].iter().all(|word| matches!(word, 1 | 3));
    let most = if shared == 0 { place.threads } else { SHARING };
    let counted = (readers >> READERS).max(writers & !HANDED_OVER) <= most;
    let held = readers & WRITING == WRITING && waited_for && counted;
    (sound && held && writer != 0).then_some(writer)
}

/// The same for one of musl (src/internal/pthread_impl.h: type, lock, waiters, then previous, next), where all but
/// normal ones name their holder and are in its list: what `previous` points to points to this one's `next`
/// (src/thread/pthread_mutex_trylock.c). Data that only looks so has no such neighbour.
#[must_use]
pub fn of_musl(place: &Place<'_>) -> Option<u32> {
    const TYPES: u32 = 0x8f;
    const NEXT: u64 = 32;
    let [kind, lock, _, _, _, _, low, high, ..] = *place.words;
    let typed = kind & 0xf != 0 && kind & !TYPES == 0;
    if !typed || lock & ID == 0 {
        return None;
    }
    let previous = u64::from(high) << 32 | u64::from(low);
    let listed = (place.memory)(previous) == Some(place.at + NEXT);
    listed.then_some(lock & ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x40_2000;

    /// What each kind says of these words, where this is the memory around.
    fn found(words: &[u32; WORDS], memory: &dyn Fn(u64) -> Option<u64>) -> [Option<u32>; 3] {
        found_among(4, 3, words, memory)
    }

    /// The same among so many threads, where so many words are the lock's address.
    fn found_among(
        threads: u32,
        pointers: u32,
        words: &[u32; WORDS],
        memory: &dyn Fn(u64) -> Option<u64>,
    ) -> [Option<u32>; 3] {
        let pointers = |at: u64, least: u32| at == AT && least <= pointers;
        let place = Place {
            words,
            at: AT,
            threads,
            memory,
            pointers: &pointers,
        };
        let [mutex, lock] = OF_GLIBC;
        [mutex, lock, OF_MUSL[0]].map(|(names, _)| names(&place))
    }

    fn nothing(_: u64) -> Option<u64> {
        None
    }

    #[test]
    fn held_locks_that_name_a_thread_are_known() {
        let recursive = [1, 3, 77, 1, 1, 0, 0, 0, 0, 0];
        let checking = [2, 0, 77, 1, 2, 0, 0, 0, 0, 0];
        let inheriting = [77 | 1 << 31, 1, 77, 1, 32, 0, 0, 0, 0, 0];
        let protecting = [5 << 19 | 1, 0, 77, 1, 64 | 2, 0, 0, 0, 0, 0];
        for words in [recursive, checking, inheriting, protecting] {
            assert_eq!(found(&words, &nothing)[0], Some(77), "{words:?}");
        }
        let written = [3, 0, 1, 1, 0, 0, 77, 0, 0, 0];
        assert_eq!(found(&written, &nothing)[1], Some(77));
    }

    #[test]
    fn a_lock_of_musl_is_one_in_a_list() {
        let words = [1, 77, 0, 0, 0, 2, 0x1008, 0x7fff, 0x40_3020, 0];
        let list = |to: u64| move |at: u64| (at == 0x7fff_0000_1008).then_some(to);
        assert_eq!(found(&words, &list(AT + 32))[2], Some(77));
        // Numbers before two pointers, as programs have many.
        for memory in [list(AT + 24), list(0)] {
            assert_eq!(found(&words, &memory), [None; 3]);
        }
        assert_eq!(found(&words, &nothing), [None; 3]);
        let normal = [0, 77, 0, 0, 0, 2, 0x1008, 0x7fff, 0x40_3020, 0];
        assert_eq!(found(&normal, &list(AT + 32)), [None; 3]);
    }

    #[test]
    fn what_nobody_asks_whose_it_is_does_not_matter() {
        for kind in [0, 3, 128, 256] {
            let held = [1, 0, 77, 1, kind, 0, 0, 0, 0, 0];
            assert_eq!(found(&held, &nothing), [None; 3], "kind {kind}");
        }
        let free = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(found(&free, &nothing), [None; 3]);
        let numbers = [1, 1, 77, 1, 1, 1, 77, 1, 1, 1];
        assert_eq!(found(&numbers, &nothing), [None; 3]);
    }

    #[test]
    fn more_threads_than_there_are_do_not_use_a_lock() {
        let waited_with = |kind: u32| [1, 1, 77, 3, kind, 0, 0, 0, 0, 0];
        let written = |readers: u32, writers: u32, shared| {
            [readers << 3 | 3, writers, 1, 1, 0, 0, 77, shared, 0, 0]
        };
        for (threads, known) in [(2, None), (3, Some(77))] {
            let found = |words| found_among(threads, 2, &words, &nothing);
            assert_eq!(found(waited_with(1))[0], known);
            assert_eq!(found(waited_with(1 | 128))[0], Some(77), "shared");
            for (readers, writers) in [(3, 0), (0, 3), (0, 1 << 31 | 3)] {
                assert_eq!(found(written(readers, writers, 0))[1], known);
                assert_eq!(found(written(readers, writers, 1))[1], Some(77), "shared");
            }
        }
    }

    /// What a compiler in a JVM had in its memory: thread 77 of 24 has it four times, and 17 others wait with it.
    #[test]
    fn who_waits_with_a_lock_has_its_address() {
        let data = [1, 4, 77, 18, 1, 0, 0, 0, 0, 0];
        for (pointers, known) in [(0, None), (16, None), (17, Some(77))] {
            assert_eq!(found_among(24, pointers, &data, &nothing)[0], known);
        }
        let alone = [1, 4, 77, 1, 1, 0, 0, 0, 0, 0];
        assert_eq!(found_among(24, 0, &alone, &nothing)[0], Some(77));
        // Who waits may be of another process.
        let shared = [1, 4, 77, 18, 1 | 128, 0, 0, 0, 0, 0];
        assert_eq!(found_among(24, 0, &shared, &nothing)[0], Some(77));
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
                assert_eq!(found(words, &nothing), [None; 3], "{words:?}");
            }
        }
    }
}
