//! What the numbers are held against.

use memmap2::MmapMut;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHUNK: usize = 256 * 1024;
const HUGE: usize = 2 << 20;

/// `dd bs=1M conv=fsync` of a file that is in the page cache, beside itself.
pub(crate) fn dd(source: &Path) -> Duration {
    let copy = source.with_extension("dd");
    let mut command = Command::new("dd");
    command.arg(format!("if={}", source.display()));
    command.arg(format!("of={}", copy.display()));
    command.args(["bs=1M", "conv=fsync"]).stderr(Stdio::null());
    let begun = Instant::now();
    assert!(command.status().expect("dd").success());
    let took = begun.elapsed();
    std::fs::remove_file(&copy).expect("remove");
    took
}

/// One pass over a file in the page cache: each chunk is read into fresh memory and hashed, as a restart checks it.
pub(crate) fn hash_and_copy(source: &Path) -> Duration {
    let file = File::open(source).expect("image");
    let len = file.metadata().expect("image").len() as usize;
    let begun = Instant::now();
    let mut memory = MmapMut::map_anon(len).expect("memory");
    let mut hashes = 0u64;
    for (index, chunk) in memory.chunks_mut(CHUNK).enumerate() {
        let at = (index * CHUNK) as u64;
        file.read_exact_at(chunk, at).expect("read");
        hashes ^= xxhash_rust::xxh3::xxh3_128(chunk) as u64;
    }
    std::hint::black_box(hashes);
    begun.elapsed()
}

/// So many bytes copied into fresh memory by as many threads as there are processors, which do nothing else: no restart can be faster on a
/// machine that gives memory no faster.
pub(crate) fn fresh_memory(len: usize) -> Duration {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let begun = Instant::now();
    let mut memory = MmapMut::map_anon(len).expect("memory");
    let part = len.div_ceil(threads).next_multiple_of(CHUNK);
    let source = vec![1; CHUNK];
    std::thread::scope(|scope| {
        for part in memory.chunks_mut(part) {
            scope.spawn(|| {
                for chunk in part.chunks_mut(CHUNK) {
                    chunk.copy_from_slice(&source[..chunk.len()]);
                }
            });
        }
    });
    begun.elapsed()
}

/// Has the machine give so much memory, as huge pages, and frees it: right afterwards it is there. A hypervisor may take it back soon.
/// How long it took to fill it when it was there, or the last of ten times.
pub(crate) fn have_memory_given(len: usize) -> Duration {
    const THERE: Duration = Duration::from_micros(250);
    let pieces = u32::try_from(len.div_ceil(HUGE)).expect("pieces");
    let mut took = Duration::MAX;
    for _ in 0..10 {
        let mut memory = MmapMut::map_anon(len).expect("memory");
        // Without huge pages it takes longer, and is done all the same.
        let _ = memory.advise(memmap2::Advice::HugePage);
        let begun = Instant::now();
        for page in memory.chunks_mut(4096) {
            page[0] = 1;
        }
        took = begun.elapsed();
        if took <= THERE * pieces {
            break;
        }
    }
    took
}
