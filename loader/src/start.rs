//! From the guard's last instruction to a checked image and a stack of our own.
//!
//! ```text
//! guard -> arguments, auxv -> image opened, checked -> hole mapped, tables read
//!        -> stack in the hole -> supervise::main
//! ```

use crate::abi::*;
use crate::ahead::{self, Notes, Successor};
use crate::chain;
use crate::context::{CONTEXT, Context, OWN_COUNT, Own, Words};
use crate::door;
use crate::feed;
use crate::image::Image;
use crate::init;
use crate::kept::Kept;
use crate::options::{HELP, Options, VERSION};
use crate::platform;
use crate::report::{self, Failure, Outcome, failure};
use crate::supervise;
use crate::sys;
use crate::tables::{self, Tables};
use crate::zstd;
use core::convert::Infallible;
use core::ffi::{CStr, c_char};
use core::ops::Range;
use core::sync::atomic::Ordering;
use loader::hole::{FILL_STACK_LEN, FILL_THREADS, HoleInput, HoleLayout, Part};
use loader::knock::MOST_BYTES;
use loader::layout::{PAGE, SectionKind, limits};
use loader::meaning::{self, Place, Unfit};
use loader::ops::{OpsList, flags};
use loader::processor::{AuxiliaryVector, Processor};

core::arch::global_asm!(
    ".section .text.on_stack,\"ax\",@progbits",
    // on_stack(top, function, argument)
    ".globl wayfarer_on_stack",
    "wayfarer_on_stack:",
    "mov rsp, rdi",
    "and rsp, -16",
    "xor ebp, ebp",
    "mov rdi, rdx",
    "call rsi",
    "ud2",
);

unsafe extern "C" {
    /// Calls `function` on another stack.
    fn wayfarer_on_stack(
        top: u64,
        function: extern "C" fn(&'static mut Context) -> !,
        argument: *mut Context,
    ) -> !;
    static __loader_start: u8;
    static __loader_end: u8;
}

/// First address of the loader's own segments, and their length.
pub fn own_segments() -> (u64, u64) {
    let (start, end) = (
        &raw const __loader_start as u64,
        &raw const __loader_end as u64,
    );
    (start, end - start)
}

/// What the kernel left on the stack.
struct Started {
    words: Words,
    exec_name: &'static CStr,
    vdso: u64,
    stack: u64,
    auxiliary: AuxiliaryVector,
}

impl Started {
    /// Reads the stack of a new program.
    ///
    /// # Safety
    /// `stack` is the stack pointer the kernel started us with.
    unsafe fn read(stack: *const u64) -> Started {
        // SAFETY: the layout of a new program's stack: argc, argv, NULL, envp, NULL, auxv.
        unsafe {
            let argc = *stack as usize;
            let argv = stack.add(1).cast::<*const c_char>();
            let mut at = stack.add(argc + 2);
            while *at != 0 {
                at = at.add(1);
            }
            at = at.add(1);
            let (mut exec_name, mut vdso) = (c"", 0);
            let mut auxiliary = AuxiliaryVector::default();
            while *at != 0 {
                match *at {
                    AT_EXECFN => exec_name = CStr::from_ptr(*at.add(1) as *const c_char),
                    AT_SYSINFO_EHDR => vdso = *at.add(1),
                    AT_HWCAP2 => auxiliary.hwcap2 = *at.add(1),
                    AT_MINSIGSTKSZ => auxiliary.minsigstksz = *at.add(1),
                    _ => {}
                }
                at = at.add(2);
            }
            Started {
                words: Words { argv, argc },
                exec_name,
                vdso,
                stack: stack as u64,
                auxiliary,
            }
        }
    }
}

/// Where the first instructions lead ([`crate::first`]).
pub extern "C" fn start(stack: *const u64) -> ! {
    let first_mask = sys::set_mask(!0);
    // Nothing is there yet that a signal would leave behind (see `supervise`).
    sys::set_mask(!ENDING_SIGNALS | first_mask);
    // SAFETY: called by the guard with the stack pointer of the new program.
    let started = unsafe { Started::read(stack) };
    let options = match Options::read(started.words.all().skip(1)) {
        Ok(options) => options,
        Err(failure) => end(b"", &failure),
    };
    if let Some(door) = options.prepare_fd {
        let _ = prepare(&started, options, first_mask, door);
        sys::exit_group(0);
    }
    report::tell_starter(options.starter_fd.unwrap_or(-1));
    if options.help {
        let _ = sys::write(1, HELP.as_bytes());
        sys::exit_group(0);
    }
    if options.version {
        let _ = sys::write(1, VERSION.as_bytes());
        sys::exit_group(0);
    }
    let argv0 = started.words.get(0).unwrap_or(c"");
    if let Err(failure) = options.check_inherited() {
        end(b"", &failure);
    }
    let image = match Image::open(&options, argv0, started.exec_name) {
        Ok(image) => image,
        Err(failure) => end(argv0.to_bytes(), &failure),
    };
    init::name_early(options.image_name.unwrap_or(argv0));
    let mut path = [0; 4096];
    let len = image.path().len();
    path[..len].copy_from_slice(image.path());
    match check(&started, image, options, first_mask) {
        // SAFETY: the stack part of the hole is mapped and nobody uses it yet.
        Ok((context, top)) => unsafe { wayfarer_on_stack(top, supervise::main, context) },
        Err(failure) => end(&path[..len], &failure),
    }
}

/// Puts memory of a job in its place, and becomes its P1 when that is asked for ([`ahead`]).
fn prepare(started: &Started, options: Options, first_mask: u64, door: i32) -> Outcome<()> {
    report::be_silent(true);
    let _ = sys::prctl(PR_SET_PDEATHSIG, u64::from(SIGKILL));
    if sys::is_hung_up(door) {
        return Ok(());
    }
    let mut from = 3;
    let image_fd = options.image_fd.unwrap_or(door);
    for fd in [door.min(image_fd), door.max(image_fd)] {
        sys::close_range(from, fd as u64 - 1);
        from = fd as u64 + 1;
    }
    sys::close_range(from, u64::from(u32::MAX));
    let first_files = sys::limit(RLIMIT_NOFILE).unwrap_or((1024, 1024));
    let argv0 = started.words.get(0).unwrap_or(c"");
    let image = Image::open(&options, argv0, started.exec_name)?;
    let mut notes = Notes::none(&image);
    let (mut image, mut options) = (image, options);
    let (mut door, mut control) = (door, None);
    init::raise_limits();
    loop {
        let hole_len = image.header.hole_len;
        let (context, top) = check(started, image, options, first_mask)?;
        // SAFETY: the context that was just made in the hole; we are its only user.
        let context = unsafe { &mut *context };
        context.first_files = first_files;
        notes = ahead::put(context, notes)?;
        if let Some(control) = control {
            context.successor = Some(Successor { control, door });
            // SAFETY: the stack part of the hole is mapped and nobody uses it yet.
            unsafe { wayfarer_on_stack(top, ahead::main, context) }
        }
        let room = sys::map_anywhere(MOST_BYTES)
            .map_err(|error| failure!(Host, "memory for what is said: {error}"))?;
        let Some(told) = door::hear(door, room) else {
            return Ok(());
        };
        (door, control) = (told.door, told.control);
        options = told.options;
        options.prepared = None;
        image = Image::open(&options, told.argv0, started.exec_name)?;
        let (base, span) = own_segments();
        if !notes.fit(&image) {
            return Ok(());
        }
        CONTEXT.store(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the hole behind our own segments, of which nothing is used any more: we run on the first stack.
        let _ = unsafe { sys::unmap(base + span, hole_len.saturating_sub(span)) };
    }
}

fn end(name: &[u8], failure: &report::Failure) -> ! {
    report::say_failure(name, failure);
    sys::exit_group(failure.exit)
}

/// Checks the image, maps the hole, reads the tables into it. Gives the context and the top
/// of the stack to go on with.
fn check(
    started: &Started,
    image: Image,
    options: Options,
    first_mask: u64,
) -> Outcome<(*mut Context, u64)> {
    let (base, span) = own_segments();
    let header = image.header;
    if header.hole_base != base {
        return Err(failure!(
            Image,
            "section .wf.header: the loader was linked for {:#x}, found at {base:#x}",
            header.hole_base
        ));
    }
    let ops_section = *header.section(SectionKind::Ops);
    let extents_section = *header.section(SectionKind::Extents);
    let input = HoleInput {
        span,
        ops_len: ops_section.len,
        extents_len: extents_section.len,
        streams: 0,
        slots: 0,
    };
    let first = HoleLayout::new(input);
    map_hole(started, base, span, header.hole_len, first.needed)?;
    // SAFETY: just mapped, used by nobody else.
    let part = |part: Part| unsafe {
        core::slice::from_raw_parts_mut((base + part.offset) as *mut u8, part.len as usize)
    };
    image.check_sections(&mut part(first.buffers)[..1 << 18])?;
    let ops_bytes: &'static mut [u8] = part(first.ops);
    image.read_section(SectionKind::Ops, ops_bytes)?;
    let ops = OpsList::read(&ops_bytes[..ops_section.used as usize]).map_err(|error| {
        failure!(
            Image,
            "section .wf.ops: {} at offset {}",
            error.what,
            error.offset
        )
    })?;
    // SAFETY: just mapped, used by nobody else.
    let extents = unsafe { tables::read(&image, base, first.extents) }?;
    if extents.base_count() > limits::BASES {
        let (found, limit) = (extents.base_count(), limits::BASES);
        return Err(failure!(
            Image,
            "section .wf.extents: found {found} bases, expected {limit} at most"
        ));
    }
    if ops.header().flags & flags::RUN == 0 && !options.verify {
        let processor = Processor::here(started.auxiliary);
        platform::check(&image, &processor, options.degraded, part(first.buffers))?;
    }
    let layout = meaning::check(&header, span, &ops, &extents).map_err(meant)?;
    check_places(&image, &extents, part(first.buffers))?;
    // SAFETY: the shared part of the hole, not used yet; replaced by memory that processes share.
    unsafe {
        sys::map(
            base + layout.shared.offset,
            layout.shared.len,
            PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
        )
    }
    .map_err(|error| failure!(Host, "memory for the loader: {error}"))?;
    let context = (base + layout.context.offset) as *mut Context;
    // SAFETY: the context part of the hole is mapped, big enough and used by nobody else.
    let context = unsafe {
        context.write(Context {
            options,
            base,
            layout,
            ops,
            extents,
            words: started.words,
            kept: Kept::NONE,
            successor: None,
            first_mask,
            first_child_action: sys::default_action(SIGCHLD),
            first_files: sys::limit(RLIMIT_NOFILE).unwrap_or((1024, 1024)),
            vdso: started.vdso,
            namespaces: false,
            huge_pages_come: huge_pages_come(),
            in_foreground: false,
            fds: [-1; 11],
            image,
        });
        CONTEXT.store(context, Ordering::Relaxed);
        &mut *context
    };
    zstd::stacks_begin_at(context.address(context.layout.fill_stacks));
    open_own(context)?;
    chain::open_folder(context);
    if context.options.verify {
        chain::verify_all(context)?;
        let _ = sys::write(1, b"ok\n");
        sys::exit_group(0);
    }
    guard_stacks(context);
    let top = base + layout.stack.end();
    Ok((context, top))
}

/// Whether the kernel gives huge pages to who does not ask for them (Documentation/admin-guide/mm/transhuge.rst).
fn huge_pages_come() -> bool {
    let mut text = [0; 64];
    let path = c"/sys/kernel/mm/transparent_hugepage/enabled";
    let Ok(fd) = sys::open(path, O_RDONLY) else {
        return false;
    };
    let found = sys::pread_full(fd, &mut text, 0).unwrap_or(0);
    sys::close(fd);
    text[..found].starts_with(b"[always]")
}

/// Makes the lowest page of the loader's stacks untouchable: running out of stack is an end, not a
/// quiet overwriting of what lies below.
fn guard_stacks(context: &Context) {
    let stacks = context.address(context.layout.fill_stacks);
    let own = context.address(context.layout.stack);
    for lowest in (0..FILL_THREADS)
        .map(|number| stacks + number * FILL_STACK_LEN)
        .chain([own])
    {
        // SAFETY: the lowest page of a stack that nobody uses yet.
        let _ = unsafe { sys::protect(lowest, PAGE, PROT_NONE) };
    }
}

const _: () = assert!(size_of::<Context>() as u64 <= loader::hole::CONTEXT_LEN);

fn meant(error: Unfit<Infallible>) -> Failure {
    let error = error.wrong();
    failure!(Image, "section {}: {error}", error.section.name())
}

/// Each byte of the pages is in one chunk, or zero.
fn check_places(image: &Image, extents: &Tables, buffers: &mut [u8]) -> Outcome<()> {
    let (gap, room) = buffers.split_at_mut(PAGE as usize);
    // SAFETY: any bytes are numbers, and a page on is aligned for them.
    let (_, places, _) = unsafe { room.align_to_mut::<Place>() };
    let count = places.len().min(meaning::PLACES);
    let all_zero = |range: Range<u64>| {
        let gap = &mut gap[..(range.end - range.start) as usize];
        image.read_gap(range.start, gap).map_err(Unplaced::Gap)
    };
    let checked = meaning::check_places(&image.header, extents, &mut places[..count], all_zero);
    checked.map_err(|error| match error {
        Unplaced::Unfit(error) => meant(error),
        Unplaced::Gap(failure) => failure,
    })
}

/// What is wrong with the pages.
enum Unplaced {
    Unfit(Unfit<Infallible>),
    Gap(Failure),
}

impl From<Unfit<Infallible>> for Unplaced {
    fn from(error: Unfit<Infallible>) -> Self {
        Unplaced::Unfit(error)
    }
}

/// Maps the hole behind the loader's own segments. The kernel may have done so already, when the
/// image's data segment spans the whole hole; else its stack and vDSO could be in the way.
fn map_hole(started: &Started, base: u64, span: u64, len: u64, needed: u64) -> Outcome<()> {
    let end = base.saturating_add(len);
    if needed > len || end > 0x7fff_ffff_f000 {
        return Err(failure!(
            Image,
            "section .wf.header: hole of {len} bytes at {base:#x}, expected {needed}"
        ));
    }
    let near = [started.stack, started.vdso];
    let margin = 8 << 20;
    let taken = near
        .iter()
        .any(|at| *at != 0 && *at + margin > base && *at < end.saturating_add(margin));
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let (from, len) = (base + span, len.saturating_sub(span) & !(PAGE - 1));
    // SAFETY: without MAP_FIXED's power nothing is replaced; with it only what the kernel mapped
    // behind our own segments: their bss, or nothing.
    let mapped = unsafe {
        match sys::map(
            from,
            len,
            PROT_READ | PROT_WRITE,
            flags | MAP_FIXED_NOREPLACE,
        ) {
            Ok(at) if at == from => Ok(at),
            Ok(at) => sys::unmap(at, len).and(Err(sys::Errno(EEXIST))),
            Err(sys::Errno(EEXIST)) if !taken => {
                sys::map(from, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED)
            }
            Err(error) => Err(error),
        }
    };
    mapped.map(|_| ()).map_err(|error| {
        failure!(
            Host,
            "no room for the loader at {from:#x} ({error}): limits on memory (ulimit -v, -d) may be in the way, or another start may find it free"
        )
    })
}

/// Raises the limit on open files as far as needed and moves the loader's descriptors away.
fn open_own(context: &mut Context) -> Outcome<()> {
    let header = *context.ops.header();
    if !context.is_run() {
        let needed = header
            .slot_base
            .saturating_add(header.slot_count)
            .saturating_add(OWN_COUNT)
            .saturating_add(feed::count(&context.ops));
        let (soft, hard) = context.first_files;
        if needed > hard {
            return Err(failure!(
                Host,
                "limit on open files: found {hard}, expected {needed} at least"
            ));
        }
        if needed > soft {
            let _ = sys::set_limit(RLIMIT_NOFILE, needed, hard);
        }
        let slots = header.slot_base..needed;
        if let Some(fd) = context
            .options
            .inherited()
            .iter()
            .find(|fd| slots.contains(&(**fd as u64)))
        {
            return Err(failure!(
                Usage,
                "--inherit-fd {fd}: numbers {} to {} are needed for the restart, use another",
                slots.start,
                slots.end - 1
            ));
        }
    }
    let came = [
        (Own::Image, Some(context.image.fd)),
        (Own::Keeper, context.options.keeper_fd),
        (Own::Starter, context.options.starter_fd),
    ];
    let came = came.map(|(own, fd)| (own, fd.map(|fd| context.out_of_the_way(fd))));
    for (own, fd) in came {
        if let Some(fd) = fd {
            let _ = sys::fcntl(fd, F_SETFD, FD_CLOEXEC);
            context.place(own, fd);
        }
    }
    context.image.fd = context.fd(Own::Image);
    context.extents.rows().is_at(context.image.fd);
    report::tell_starter(context.fd(Own::Starter));
    if let Ok(copy) = sys::fcntl(2, 1030, 3) {
        // F_DUPFD_CLOEXEC: failures are reported when the job's own descriptor 2 is in place.
        context.place(Own::Stderr, copy as i32);
        report::write_to(context.fd(Own::Stderr));
    }
    Ok(())
}
