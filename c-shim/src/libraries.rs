//! Libraries, and other files that a C library maps whole, that a job has asked for: whoever opens one for the first time wants all of it at
//! once, and so it comes with the answer. Later it is in the job's store ([`crate::store`]).

use crate::hash::fnv;
use core::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 64;

/// One bit for many names.
#[derive(Debug)]
#[repr(C)]
pub struct Libraries {
    words: [AtomicU64; WORDS],
}

/// Names of glibc's: where locales are, and what tells which conversions there are.
const OF_LOCALES: [&[u8]; 2] = [b"/lib/locale/", b"/gconv-modules.cache"];

/// It is called like a library (or like the dynamic linker's cache, or a part of a locale).
pub fn is_library(name: &[u8]) -> bool {
    let has = |what: &[u8]| name.windows(what.len()).any(|part| part == what);
    is_object(name) || OF_LOCALES.iter().any(|what| has(what))
}

/// It is called like what a dynamic linker maps.
pub fn is_object(name: &[u8]) -> bool {
    let simple = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    simple.ends_with(b".so") || simple.windows(4).any(|part| part == b".so.")
}

/// This job has not asked for it, as far as is known.
pub fn is_new(asked: &Libraries, name: &[u8]) -> bool {
    let hash = fnv(0, name);
    let hash = hash ^ hash >> 32;
    let bit = 1 << (hash % 64);
    let word = &asked.words[(hash / 64) as usize % WORDS];
    word.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;

    #[test]
    fn a_library_is_new_once() {
        let asked = zeroed::<Libraries>();
        for name in [
            "/lib/libc.so.6",
            "/lib/libc.so",
            "libm.so.6",
            "/etc/ld.so.cache",
            "/usr/lib/locale/C.utf8/LC_CTYPE",
            "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
        ] {
            assert!(is_library(name.as_bytes()), "{name}");
            assert!(is_new(&asked, name.as_bytes()), "{name}");
            assert!(!is_new(&asked, name.as_bytes()), "{name}");
        }
        for name in [
            "/bin/sh",
            "/lib/libc.a",
            "a.so.d/x",
            "",
            "/",
            "so",
            "x.sox",
            "/usr/lib/locales",
        ] {
            assert!(!is_library(name.as_bytes()), "{name}");
        }
    }
}
