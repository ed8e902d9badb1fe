//! The vDSO: what a program may have taken from it, read out of its bytes.
//!
//! ```text
//! [vdso] of the job --record--> VdsoRecord --plan--> pieces moved back (same bytes at home),
//!                                                    or old entry points made jumps (other bytes)
//! ```
//! # What callers may rely on
//! [`record`] reads arbitrary bytes without panicking. The hash it gives is that of the mapping
//! as the kernel handed it out: the zero tail behind the ELF image, where an injected stub
//! lives for a moment, is hashed as zeros whatever stands there.
//!
//! # What it does not do
//! It does not move anything; that is the loader's work.

#[cfg(feature = "foreign-vdso")]
pub mod foreign;

use crate::snapshot::{VdsoFunction, VdsoRecord};
use goblin::elf::Elf;
use goblin::elf::header::{EI_CLASS, ELFCLASS64, EM_X86_64};
use goblin::elf::program_header::PT_LOAD;
use goblin::elf::sym::{STT_FUNC, STT_NOTYPE};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use thiserror::Error;

/// No vDSO is larger; a limit before anything is believed.
const MAX_LEN: usize = 1 << 20;

/// Why bytes are not taken for a vDSO.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VdsoError {
    /// The mapping is far larger than any vDSO.
    #[error("vdso of {found} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Bytes found.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are not an ELF image.
    #[error("vdso at {start:#x} is not an ELF image")]
    NotElf {
        /// Address of the mapping.
        start: u64,
        /// What the reader says.
        #[source]
        source: goblin::error::Error,
    },
    /// The image is not one of a 64-bit x86 kernel.
    #[error("vdso at {start:#x} is for machine {machine} class {class}, expected x86-64")]
    WrongMachine {
        /// Address of the mapping.
        start: u64,
        /// `e_machine` found.
        machine: u16,
        /// `EI_CLASS` found.
        class: u8,
    },
    /// The image claims to be longer than the mapping, or has no loadable part.
    #[error("vdso at {start:#x} is {found} bytes long, its headers say {expected}")]
    CutShort {
        /// Address of the mapping.
        start: u64,
        /// Bytes of the mapping.
        found: usize,
        /// Bytes that the headers speak of.
        expected: u64,
    },
    /// A function lies outside the mapping.
    #[error("vdso function {name} lies at offset {offset:#x}, behind the mapping")]
    StraySymbol {
        /// Its name.
        name: String,
        /// Its offset.
        offset: u64,
    },
}

/// A vDSO as found in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdsoImage {
    /// Address of the mapping.
    pub start: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The record of a vDSO whose mapping begins at `start` and holds `bytes`.
///
/// # Errors
/// [`VdsoError`] if the bytes are not a vDSO of a 64-bit x86 kernel.
pub fn record(bytes: &[u8], start: u64) -> Result<VdsoRecord, VdsoError> {
    let elf = parse(bytes, start)?;
    let tail = tail_of(&elf, bytes, start)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..tail.start]);
    hasher.update(&vec![0; tail.len()]);
    let mut symbols = Vec::new();
    for symbol in &elf.dynsyms {
        let callable = symbol.st_type() == STT_FUNC || symbol.st_type() == STT_NOTYPE;
        if !callable || symbol.st_shndx == 0 || symbol.st_size == 0 {
            continue;
        }
        let Some(name) = elf.dynstrtab.get_at(symbol.st_name) else {
            continue;
        };
        let end = symbol.st_value.checked_add(symbol.st_size);
        if end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(VdsoError::StraySymbol {
                name: name.to_owned(),
                offset: symbol.st_value,
            });
        }
        symbols.push(VdsoFunction {
            name: name.to_owned(),
            address: start.wrapping_add(symbol.st_value),
            len: symbol.st_size,
        });
    }
    symbols.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    Ok(VdsoRecord {
        start,
        hash: *hasher.finalize().as_bytes(),
        symbols,
    })
}

/// Offsets of the zero tail: what lies between the end of the ELF image and the end of its mapping.
///
/// # Errors
/// [`VdsoError`] if the bytes are not a vDSO of a 64-bit x86 kernel.
pub fn tail(bytes: &[u8]) -> Result<Range<usize>, VdsoError> {
    tail_of(&parse(bytes, 0)?, bytes, 0)
}

/// The vDSO of the calling process: what this kernel gives.
///
/// # Errors
/// When `/proc/self/maps` or `/proc/self/mem` cannot be read, or there is no vDSO (`vdso=0`).
pub fn own() -> io::Result<VdsoImage> {
    let maps = BufReader::new(File::open("/proc/self/maps")?);
    for line in maps.lines() {
        let line = line?;
        let Some(range) = line
            .strip_suffix("[vdso]")
            .and_then(|l| l.split(' ').next())
        else {
            continue;
        };
        let bounds = range.split_once('-').and_then(|(start, end)| {
            let start = u64::from_str_radix(start, 16).ok()?;
            let end = u64::from_str_radix(end, 16).ok()?;
            Some((start, usize::try_from(end.checked_sub(start)?).ok()?))
        });
        let Some((start, len)) = bounds.filter(|(_, len)| *len <= MAX_LEN) else {
            continue;
        };
        let mut bytes = vec![0; len];
        File::open("/proc/self/mem")?.read_exact_at(&mut bytes, start)?;
        return Ok(VdsoImage { start, bytes });
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "no [vdso] in /proc/self/maps",
    ))
}

impl VdsoImage {
    /// Its record.
    ///
    /// # Errors
    /// As [`record`].
    pub fn record(&self) -> Result<VdsoRecord, VdsoError> {
        record(&self.bytes, self.start)
    }
}

impl VdsoRecord {
    /// The function that `address` lies in, if any.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<&VdsoFunction> {
        self.symbols
            .iter()
            .find(|function| address.wrapping_sub(function.address) < function.len)
    }
}

fn parse(bytes: &[u8], start: u64) -> Result<Elf<'_>, VdsoError> {
    if bytes.len() > MAX_LEN {
        return Err(VdsoError::TooLong {
            found: bytes.len(),
            limit: MAX_LEN,
        });
    }
    let elf = Elf::parse(bytes).map_err(|source| VdsoError::NotElf { start, source })?;
    let class = elf.header.e_ident[EI_CLASS];
    if elf.header.e_machine != EM_X86_64 || class != ELFCLASS64 {
        return Err(VdsoError::WrongMachine {
            start,
            machine: elf.header.e_machine,
            class,
        });
    }
    Ok(elf)
}

fn tail_of(elf: &Elf<'_>, bytes: &[u8], start: u64) -> Result<Range<usize>, VdsoError> {
    let loaded = elf
        .program_headers
        .iter()
        .filter(|header| header.p_type == PT_LOAD)
        .map(|header| header.p_offset.saturating_add(header.p_filesz))
        .max()
        .unwrap_or(u64::MAX);
    let table = u64::from(elf.header.e_shnum) * u64::from(elf.header.e_shentsize);
    let end = if elf.header.e_shoff == 0 {
        loaded
    } else {
        loaded.max(elf.header.e_shoff.saturating_add(table))
    };
    match usize::try_from(end) {
        Ok(end) if end <= bytes.len() => Ok(end..bytes.len()),
        _ => Err(VdsoError::CutShort {
            start,
            found: bytes.len(),
            expected: end,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_own_vdso_has_the_functions_programs_call() {
        let own = own().expect("vdso");
        let record = own.record().expect("record");
        assert_eq!(record.start, own.start);
        let clock = record
            .symbols
            .iter()
            .find(|function| function.name == "__vdso_clock_gettime")
            .expect("clock_gettime");
        assert!(clock.len > 16 && clock.address > own.start);
        assert_eq!(
            record.function_at(clock.address + 5).map(|f| f.address),
            Some(clock.address)
        );
        assert_eq!(record.function_at(own.start), None);
        // What getauxval says the kernel gave us is where the bytes came from.
        assert_eq!(&own.bytes[..4], b"\x7fELF");
    }

    #[test]
    fn the_hash_of_an_untouched_vdso_is_that_of_its_bytes() {
        let own = own().expect("vdso");
        let record = own.record().expect("record");
        assert_eq!(record.hash, *blake3::hash(&own.bytes).as_bytes());
    }

    #[test]
    fn a_stub_in_the_tail_does_not_change_the_hash_but_changed_text_does() {
        let own = own().expect("vdso");
        let clean = own.record().expect("record");
        let tail = tail(&own.bytes).expect("tail");
        assert!(tail.len() >= 64, "a tail of {} bytes", tail.len());
        let mut stubbed = own.clone();
        stubbed.bytes[tail.start + 3..tail.start + 50].fill(0xcc);
        assert_eq!(stubbed.record().expect("record").hash, clean.hash);
        let text = (clean.symbols[0].address - own.start) as usize;
        stubbed.bytes[text] ^= 1;
        assert_ne!(stubbed.record().expect("record").hash, clean.hash);
    }

    #[test]
    fn any_truncation_is_an_error() {
        let own = own().expect("vdso");
        let end = tail(&own.bytes).expect("tail").start;
        for len in (0..end).step_by(61) {
            assert!(record(&own.bytes[..len], own.start).is_err(), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(flips in proptest::collection::vec((0usize..2048, 0u8..8), 1..12), soup in any::<Vec<u8>>()) {
            let mut own = own().expect("vdso");
            for (at, bit) in flips {
                own.bytes[at] ^= 1 << bit;
            }
            let _ = own.record();
            let _ = record(&soup, 0x7fff_0000_0000);
        }
    }
}
