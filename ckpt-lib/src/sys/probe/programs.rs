//! Programs in memory, and putting the memory layout of a process back.
#![allow(unsafe_code)]

use super::{Outcome, Sheet, call, in_child, plain};
use std::fs;

/// Outcomes of [`programs`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs {
    pub(crate) memory_program: Outcome,
    pub(crate) mm_map: Outcome,
}

const MFD_CLOEXEC: u64 = 1;
const MFD_EXEC: u64 = 0x10;
const EXITS_WITH: i32 = 42;
const PR_SET_MM_MAP: u64 = 14;

/// Tries both, in two children.
pub(crate) fn programs() -> Programs {
    Programs {
        memory_program: memory_program(),
        mm_map: mm_map(),
    }
}

/// The smallest program: `_exit(42)`.
fn smallest_program() -> Vec<u8> {
    const BASE: u64 = 0x10_0000;
    const HEADERS: u64 = 64 + 56;
    let code = [0xbf, EXITS_WITH as u8, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 5];
    let len = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2u16, 62].into_iter().flat_map(u16::to_le_bytes));
    elf.extend(1u32.to_le_bytes());
    let words = [BASE + HEADERS, 64, 0];
    elf.extend(words.into_iter().flat_map(u64::to_le_bytes));
    elf.extend(0u32.to_le_bytes());
    let counts = [64u16, 56, 1, 0, 0, 0];
    elf.extend(counts.into_iter().flat_map(u16::to_le_bytes));
    elf.extend([1u32, 5].into_iter().flat_map(u32::to_le_bytes));
    let segment = [0, BASE, BASE, len, len, 4096];
    elf.extend(segment.into_iter().flat_map(u64::to_le_bytes));
    elf.extend(code);
    elf
}

fn memory_program() -> Outcome {
    let program = smallest_program();
    let empty: [u64; 1] = [0];
    let tried = in_child(|sheet: &Sheet| {
        let name = c"wayfarer-probe".as_ptr() as u64;
        let create = |flags: u64| {
            // SAFETY: the kernel reads a C string.
            unsafe { call(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]) }
        };
        // MFD_EXEC came with 6.3; before, EINVAL.
        let made = match create(MFD_CLOEXEC | MFD_EXEC) {
            Err(libc::EINVAL) => create(MFD_CLOEXEC),
            made => made,
        };
        let fd = match made {
            Ok(fd) => fd,
            Err(_) => return sheet.note(0, &made),
        };
        let write = [fd, program.as_ptr() as u64, program.len() as u64, 0, 0, 0];
        // SAFETY: the kernel reads the slice.
        let _ = unsafe { call(libc::SYS_write, write) };
        let vector = empty.as_ptr() as u64;
        let at_empty_path = libc::AT_EMPTY_PATH as u64;
        let exec = [fd, c"".as_ptr() as u64, vector, vector, at_empty_path, 0];
        // SAFETY: the kernel reads an empty string and two empty vectors.
        sheet.note(0, &unsafe { call(libc::SYS_execveat, exec) });
    });
    let Some((sheet, status)) = tried else {
        return Outcome::Untried;
    };
    let ran = status.is_some_and(|s| libc::WIFEXITED(s) && libc::WEXITSTATUS(s) == EXITS_WITH);
    match sheet.outcome(0) {
        Outcome::Untried if ran => Outcome::Works,
        other => other,
    }
}

/// `PR_SET_MM_MAP` with the values that the process has already.
fn mm_map() -> Outcome {
    let Some(layout) = layout_of_self() else {
        return Outcome::Untried;
    };
    let tried = in_child(|sheet: &Sheet| sheet.note(0, &set_layout(&layout, u32::MAX)));
    tried.map_or(Outcome::Untried, |(sheet, _)| sheet.outcome(0))
}

/// The memory layout of this process and of its forked children, but for `brk`.
pub(super) type Layout = [u64; 10];

/// Sets the memory layout to what it is, and the program file to that of a descriptor (or -1).
pub(super) fn set_layout(layout: &Layout, exe_fd: u32) -> Result<u64, i32> {
    let brk = plain(libc::SYS_brk, [0; 6])?;
    let &[
        start_code,
        end_code,
        start_stack,
        start_data,
        end_data,
        start_brk,
        arg_start,
        arg_end,
        env_start,
        env_end,
    ] = layout;
    // struct prctl_mm_map: eleven addresses, auxv, its size and exe_fd
    let map = [
        start_code,
        end_code,
        start_data,
        end_data,
        start_brk,
        brk,
        start_stack,
        arg_start,
        arg_end,
        env_start,
        env_end,
        0,
        u64::from(exe_fd) << 32,
    ];
    let set = [
        libc::PR_SET_MM as u64,
        PR_SET_MM_MAP,
        map.as_ptr() as u64,
        size_of_val(&map) as u64,
        0,
        0,
    ];
    // SAFETY: the kernel reads the struct; the values are those in force.
    unsafe { call(libc::SYS_prctl, set) }
}

/// Fields 26, 27, 28, 45 to 51 of `/proc/self/stat` (proc(5)).
pub(super) fn layout_of_self() -> Option<Layout> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let mut found = [0; 10];
    let numbers = [26, 27, 28, 45, 46, 47, 48, 49, 50, 51];
    for (slot, number) in found.iter_mut().zip(numbers) {
        *slot = fields.get(number - 3)?.parse().ok()?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_program_runs_from_memory_where_that_is_allowed() {
        let path = std::env::temp_dir().join(format!("wf-smallest-{}", std::process::id()));
        fs::write(&path, smallest_program()).expect("write");
        let mut permissions = fs::metadata(&path).expect("metadata").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o700);
        fs::set_permissions(&path, permissions).expect("chmod");
        let status = std::process::Command::new(&path).status();
        fs::remove_file(&path).expect("remove");
        assert_eq!(status.expect("runs").code(), Some(EXITS_WITH));
        assert_ne!(memory_program(), Outcome::Untried);
    }

    #[test]
    fn a_layout_can_be_set_to_what_it_is() {
        assert_eq!(mm_map(), Outcome::Works);
    }
}
