//! A vDSO as from another kernel, made on purpose: for tests of restarts on a machine whose vDSO
//! differs, where there is only one machine.
//!
//! ```text
//! text:   [helpers][a][b][c]          (the kernel's)
//!  -->    [pad][c][pad][b][pad][a][pad][helpers]   every instruction moved, all branches set right
//! ```
//! [`relay`] gives the new bytes and where each instruction went; [`rewrite`] makes of an image
//! one whose job had been running on that kernel: its vDSO's text, the registers of threads inside
//! it, and every word of memory that points to one of its instructions (function pointers of the C
//! library, return addresses, signal frames) are changed.
//!
//! # What it does not do
//! It is not part of what the command does; only tests ask for it (feature `foreign-vdso`).

use super::{VdsoError, parse, record};
use crate::checkpoint;
use crate::image::{
    ByteSource, Committed, Image, ImageError, ImageWriter, Part, WriteOptions, Zeros,
};
use crate::snapshot::{MappingKind, SnapshotV1};
use goblin::elf::dynamic::DT_SYMTAB;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, FlowControl, IcedError,
    Instruction, InstructionBlock,
};
use loader::layout::{PAGE, Space};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use thiserror::Error;

/// Bytes between functions of the new text.
const PAD: u64 = 48;
const SYMBOL_LEN: usize = 24;
const E_SHOFF: Range<usize> = 40..48;
const E_SHNUM: Range<usize> = 60..64;
const INT3: u8 = 0xcc;

/// Why there is no foreign vDSO.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// The bytes are not a vDSO.
    #[error(transparent)]
    Vdso(#[from] VdsoError),
    /// The vDSO has something that cannot be moved.
    #[error("vdso text at {at:#x}: {what}")]
    Text {
        /// Address.
        at: u64,
        /// What is in the way.
        what: &'static str,
    },
    /// The moved instructions could not be encoded.
    #[error("the vdso's text could not be encoded anew")]
    Encode(#[from] IcedError),
    /// The image could not be read or written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The rewritten image could not be planned.
    #[error(transparent)]
    Commit(#[from] checkpoint::CheckpointError),
}

/// A vDSO laid out anew.
#[derive(Clone, Debug)]
pub struct Relaid {
    /// The mapping's new bytes.
    pub bytes: Vec<u8>,
    /// Where each instruction went: old address, new address.
    pub moved: HashMap<u64, u64>,
}

/// Lays the text of the vDSO at `start` out anew.
///
/// # Errors
/// [`ForeignError`] where the text is not of a kind that can be moved (jump tables), or does not
/// fit any more.
pub fn relay(bytes: &[u8], start: u64) -> Result<Relaid, ForeignError> {
    let text = text_of(bytes, start)?;
    let old = record(bytes, start)?;
    let mut cuts: Vec<u64> = old.symbols.iter().map(|symbol| symbol.address).collect();
    cuts.extend([text.start, text.end]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut functions = vec![];
    for pair in cuts.windows(2) {
        if let &[from, to] = pair {
            functions.push(decode(bytes, start, from..to)?);
        }
    }
    // Everything in reverse order, with room between.
    let mut at = text.start + PAD;
    let mut blocks = vec![];
    for function in functions.iter().rev() {
        blocks.push(InstructionBlock::new(function, at));
        let (first, last) = (function.first(), function.last());
        let len = last.map_or(0, Instruction::next_ip) - first.map_or(0, Instruction::ip);
        at = (at + len + PAD).next_multiple_of(16);
    }
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let encoded = BlockEncoder::encode_slice(64, &blocks, options)?;

    let mut new = bytes.to_vec();
    new[(text.start - start) as usize..].fill(INT3);
    let mut moved = HashMap::new();
    for (index, result) in encoded.iter().enumerate() {
        let end = result.rip + result.code_buffer.len() as u64;
        let next = encoded
            .get(index + 1)
            .map_or(start + bytes.len() as u64, |next| next.rip);
        if end > next {
            return Err(ForeignError::Text {
                at: result.rip,
                what: "the moved functions do not fit",
            });
        }
        let place = (result.rip - start) as usize;
        new[place..place + result.code_buffer.len()].copy_from_slice(&result.code_buffer);
        let function = &functions[functions.len() - 1 - index];
        for (instruction, offset) in function.iter().zip(&result.new_instruction_offsets) {
            if *offset != u32::MAX {
                moved.insert(instruction.ip(), result.rip + u64::from(*offset));
            }
        }
    }
    // What lay behind the text is gone: section headers too. The loaded part is all there is.
    new[E_SHOFF].fill(0);
    new[E_SHNUM].fill(0);
    move_symbols(&mut new, bytes, start, &moved)?;
    lengthen_segment(&mut new, start)?;
    Ok(Relaid { bytes: new, moved })
}

fn text_of(bytes: &[u8], start: u64) -> Result<Range<u64>, ForeignError> {
    let elf = parse(bytes, start)?;
    let named = |header: &&goblin::elf::SectionHeader| {
        elf.shdr_strtab.get_at(header.sh_name) == Some(".text")
    };
    let section = elf.section_headers.iter().find(named);
    let section = section.ok_or(ForeignError::Text {
        at: start,
        what: "there is no section .text",
    })?;
    let end = section.sh_addr.saturating_add(section.sh_size);
    if end > bytes.len() as u64 {
        return Err(ForeignError::Text {
            at: start,
            what: ".text lies behind the mapping",
        });
    }
    Ok(start + section.sh_addr..start + end)
}

fn decode(bytes: &[u8], start: u64, range: Range<u64>) -> Result<Vec<Instruction>, ForeignError> {
    let code = &bytes[(range.start - start) as usize..(range.end - start) as usize];
    let mut decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
    let mut instructions = vec![];
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let what = match instruction.flow_control() {
            _ if instruction.is_invalid() => "not an instruction",
            FlowControl::IndirectBranch => "an indirect branch (a jump table)",
            _ => {
                instructions.push(instruction);
                continue;
            }
        };
        let at = instruction.ip();
        return Err(ForeignError::Text { at, what });
    }
    Ok(instructions)
}

/// Gives the dynamic symbols their new values.
fn move_symbols(
    new: &mut [u8],
    old: &[u8],
    start: u64,
    moved: &HashMap<u64, u64>,
) -> Result<(), ForeignError> {
    let elf = parse(old, start)?;
    let table = elf.dynamic.as_ref().and_then(|dynamic| {
        let mut entries = dynamic.dyns.iter();
        entries.find(|entry| entry.d_tag == DT_SYMTAB)
    });
    let Some(table) = table.and_then(|entry| usize::try_from(entry.d_val).ok()) else {
        return Ok(());
    };
    for (index, symbol) in elf.dynsyms.iter().enumerate() {
        let Some(to) = moved.get(&(start + symbol.st_value)) else {
            continue;
        };
        // Its length, unless it ends where another begins that went elsewhere.
        let end = moved.get(&(start + symbol.st_value + symbol.st_size));
        let len = end
            .and_then(|end| end.checked_sub(*to))
            .filter(|len| *len < 2 * symbol.st_size)
            .unwrap_or(symbol.st_size);
        let at = table + index * SYMBOL_LEN;
        if let Some(entry) = new.get_mut(at..at + SYMBOL_LEN) {
            entry[8..16].copy_from_slice(&(to - start).to_le_bytes());
            entry[16..24].copy_from_slice(&len.to_le_bytes());
        }
    }
    Ok(())
}

/// Lets the one loadable segment cover the whole mapping.
fn lengthen_segment(new: &mut [u8], start: u64) -> Result<(), ForeignError> {
    const PT_LOAD: [u8; 4] = 1u32.to_le_bytes();
    let elf = parse(new, start)?;
    let (at, count) = (elf.header.e_phoff as usize, usize::from(elf.header.e_phnum));
    let len = (new.len() as u64).to_le_bytes();
    for index in 0..count {
        let header = at + index * 56;
        if new.get(header..header + 4) == Some(&PT_LOAD) {
            new[header + 32..header + 40].copy_from_slice(&len);
            new[header + 40..header + 48].copy_from_slice(&len);
        }
    }
    Ok(())
}

/// Writes `output`: the image `input`, as if its job had run on a kernel whose vDSO is laid out
/// as [`relay`] does it.
///
/// # Errors
/// [`ForeignError`]; nothing stands under the name `output` then.
pub fn rewrite(input: &Path, output: &Path) -> Result<Committed, ForeignError> {
    let image = Image::open(input)?;
    let mut snapshot = image.snapshot()?;
    let mut relaid = vec![];
    for index in 0..snapshot.processes.len() {
        relaid.push(relay_process(&image, &mut snapshot, index)?);
    }
    let mut writer = ImageWriter::create(output, WriteOptions::default())?;
    let processes = (0..snapshot.processes.len() as u32).map(Space::Process);
    let inodes = (0..snapshot.inodes.len() as u32).map(Space::Inode);
    for space in processes.chain(inodes) {
        let extents = image.tables().extents_of(space);
        let ranges = extents.map(|extent| extent.map(|one| one.at..one.at + one.len));
        let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
        let changes = match space {
            Space::Process(index) => relaid.get(index as usize).and_then(Option::as_ref),
            Space::Inode(_) => None,
        };
        let source = Rewritten {
            image: &image,
            space,
            changes,
        };
        let part = Part::new(space, &ranges, &source, Zeros::Kept)?;
        writer.store_parts(&[part], &|_| ())?;
    }
    Ok(checkpoint::commit(writer, &snapshot)?)
}

/// A process's new vDSO, and its place.
type Changes = (Range<u64>, Relaid);

fn relay_process(
    image: &Image,
    snapshot: &mut SnapshotV1,
    index: usize,
) -> Result<Option<Changes>, ForeignError> {
    let process = &mut snapshot.processes[index];
    let mut mappings = process.memory.mappings.iter();
    let Some(vdso) = mappings.find(|mapping| mapping.kind == MappingKind::Vdso) else {
        return Ok(None);
    };
    let range = vdso.start..vdso.end;
    let mut bytes = vec![0; (range.end - range.start) as usize];
    image.read_space(Space::Process(index as u32), range.start, &mut bytes)?;
    let relaid = relay(&bytes, range.start)?;
    process.memory.vdso = Some(record(&relaid.bytes, range.start)?);
    for thread in &mut process.threads {
        let registers = &mut thread.registers;
        for register in [
            &mut registers.rip,
            &mut registers.rax,
            &mut registers.rbx,
            &mut registers.rcx,
            &mut registers.rdx,
            &mut registers.rsi,
            &mut registers.rdi,
            &mut registers.rbp,
            &mut registers.r8,
            &mut registers.r9,
            &mut registers.r10,
            &mut registers.r11,
            &mut registers.r12,
            &mut registers.r13,
            &mut registers.r14,
            &mut registers.r15,
        ] {
            *register = relaid.moved.get(register).copied().unwrap_or(*register);
        }
    }
    Ok(Some((range, relaid)))
}

/// The bytes of an image with the changes of a new vDSO.
struct Rewritten<'a> {
    image: &'a Image,
    space: Space,
    changes: Option<&'a Changes>,
}

impl ByteSource for Rewritten<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let read = self.image.read_space(self.space, at, buf);
        read.map_err(io::Error::other)?;
        let Some((range, relaid)) = self.changes else {
            return Ok(());
        };
        for (index, page) in buf.chunks_mut(PAGE as usize).enumerate() {
            let address = at + index as u64 * PAGE;
            if range.contains(&address) {
                let from = (address - range.start) as usize;
                page.copy_from_slice(&relaid.bytes[from..from + page.len()]);
                continue;
            }
            for word in page.chunks_exact_mut(8) {
                let mut raw = [0; 8];
                raw.copy_from_slice(word);
                let value = u64::from_le_bytes(raw);
                if range.contains(&value)
                    && let Some(to) = relaid.moved.get(&value)
                {
                    word.copy_from_slice(&to.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vdso::own;

    #[test]
    fn every_function_is_elsewhere_and_the_image_still_reads() {
        let own = own().expect("vdso");
        let before = own.record().expect("record");
        let relaid = relay(&own.bytes, own.start).expect("relaid");
        let after = record(&relaid.bytes, own.start).expect("record");
        assert_ne!(before.hash, after.hash);
        assert_eq!(before.symbols.len(), after.symbols.len());
        for function in &before.symbols {
            let mut found = after.symbols.iter();
            let new = found.find(|new| new.name == function.name).expect("name");
            assert_ne!(new.address, function.address, "{}", function.name);
            assert_eq!(relaid.moved[&function.address], new.address);
        }
        assert_eq!(relaid.bytes.len(), own.bytes.len());
    }

    #[test]
    fn moved_instructions_do_what_they_did() {
        let own = own().expect("vdso");
        let relaid = relay(&own.bytes, own.start).expect("relaid");
        let at = |bytes: &[u8], address: u64| {
            let code = &bytes[(address - own.start) as usize..];
            Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode()
        };
        assert!(relaid.moved.len() > 100);
        for (&from, &to) in &relaid.moved {
            let (old, new) = (at(&own.bytes, from), at(&relaid.bytes, to));
            assert_eq!(old.mnemonic(), new.mnemonic(), "{from:#x} {to:#x}");
            if old.is_ip_rel_memory_operand() {
                let target = old.ip_rel_memory_address();
                let expected = relaid.moved.get(&target).copied().unwrap_or(target);
                assert_eq!(new.ip_rel_memory_address(), expected, "{from:#x}");
            }
            if old.near_branch_target() != 0 {
                let target = old.near_branch_target();
                assert_eq!(new.near_branch_target(), relaid.moved[&target], "{from:#x}");
            }
        }
    }
}
