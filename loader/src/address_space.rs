//! Emptying the address space, and the kernel's notes about it.
//!
//! # What callers may rely on
//! After [`unmap_all`] only the hole and what is in its place already ([`crate::kept`]) are left: the loader runs in it, on a stack in it, from
//! anonymous memory, and the machine's vDSO lies in it.

use crate::abi::*;
use crate::context::Context;
use crate::report::{self, Outcome, failure};
use crate::start::own_segments;
use crate::sys::{self, Errno, SysResult, call};
use crate::vdso;
use loader::ops::{MmMap, tails};

/// End of the address space of a program without five-level addresses.
pub const TOP: u64 = 0x7fff_ffff_f000;

unsafe extern "C" {
    static __loader_data: u8;
}

/// Unmaps everything but the hole and what is in its place already.
pub fn unmap_all(context: &Context) -> Outcome<()> {
    let failed = |error: Errno| failure!(Failed, "emptying the address space: {error}");
    vdso::stage(context)?;
    let hole = context.base..context.base + context.image.header.hole_len;
    let kept = context.kept.runs();
    let mut from = 0;
    while from < TOP {
        let next = kept.iter().map(crate::kept::Run::range);
        let next = next.chain([hole.clone()]).filter(|one| one.start >= from);
        let next = next.min_by_key(|one| one.start).unwrap_or(TOP..TOP);
        if next.start > from {
            // SAFETY: everything the loader still uses lies in the hole: code, data, stack, tables,
            // context. What the kernel put on the first stack is not read any more.
            unsafe { sys::unmap(from, next.start - from) }.map_err(failed)?;
        }
        from = next.end;
    }
    let (base, span) = own_segments();
    let data = &raw const __loader_data as u64;
    replace(context, base, data - base, PROT_READ | PROT_EXEC).map_err(failed)?;
    replace(context, data, base + span - data, PROT_READ | PROT_WRITE).map_err(failed)
}

/// Puts an anonymous copy in the place of a mapping of the image file: `/proc/PID/exe` can only
/// be set when nothing shows the old one.
fn replace(context: &Context, address: u64, len: u64, prot: u64) -> SysResult<()> {
    let room = context.address(context.layout.buffers);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // SAFETY: the buffers are not in use; the copy is made and put in place by single calls
    // between which nothing is written to the original: this is the process's only thread, and
    // its stack lies elsewhere.
    unsafe {
        sys::map(room, len, PROT_READ | PROT_WRITE, flags)?;
        core::ptr::copy_nonoverlapping(address as *const u8, room as *mut u8, len as usize);
        sys::protect(room, len, prot)?;
        sys::remap(room, len, address)?;
        sys::map(room, len, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE)?;
    }
    Ok(())
}

/// `PR_SET_MM_MAP`: heap, arguments, environment, auxiliary vector, and the program's file.
pub fn layout(context: &Context, op: &MmMap, tail: &'static [u8]) -> Outcome<()> {
    let auxiliary = tails::auxiliary_vector(tail);
    let mut layout = MmLayout {
        places: [
            op.start_code,
            op.end_code,
            op.start_data,
            op.end_data,
            op.start_brk,
            op.brk,
            op.start_stack,
            op.arg_start,
            op.arg_end,
            op.env_start,
            op.env_end,
        ],
        auxv: auxiliary.as_ptr() as u64,
        auxv_len: auxiliary.len() as u32,
        exe_fd: op.exe_slot as u32,
    };
    let set = |layout: &MmLayout| {
        let size = size_of::<MmLayout>() as u64;
        let args = [
            PR_SET_MM,
            PR_SET_MM_MAP,
            core::ptr::from_ref(layout) as u64,
            size,
            0,
        ];
        // SAFETY: the kernel reads the structure and the auxiliary vector it points to.
        unsafe { call(SYS_PRCTL, args) }
    };
    let mut result = set(&layout);
    if let Err(error) = result
        && layout.exe_fd != u32::MAX
    {
        layout.exe_fd = u32::MAX;
        result = set(&layout);
        if result.is_ok() {
            report::say(
                context.name(),
                format_args!(
                    "note: /proc/PID/exe of the job shows the image, not its program ({error})"
                ),
            );
        }
    }
    result
        .map(|_| ())
        .map_err(|error| failure!(Failed, "places of heap, arguments and environment: {error}"))
}

/// Writes the id of this thread to the job's memory.
pub fn write_own_id(address: u64) {
    // SAFETY: the list decides what is written where; it comes after the job's mappings were
    // made. An address that is not mapped kills this process, which ends the restart.
    unsafe { (address as *mut u32).write_unaligned(sys::tid() as u32) };
}
