//! The tail stub, and how each thread that executes something for us finds its way back alone.
//!
//! ```text
//! tail stub (zero tail of [vdso], one thread):  call: syscall -> [undo a mapping] -> home
//! workshop:  `runner` -----------------------------------------------------> home
//! home (one per thread):  let pending signals be handled -> mask -> registers -> where it was
//! ```
//! A thread that was in a call is brought in with that call's restart code in `rax` and the number
//! of the stub's own first call in `orig_rax`. If a signal handler must run before anything else, the
//! kernel makes this EINTR, as it would have made the job's call; the stub then goes
//! home at once with EINTR. Else the kernel enters the stub's call.
//!
//! On the way home `pselect6` with a zero time-out takes the old mask, and with it what the interrupted
//! call (`sigsuspend`, `ppoll` ...) blocks itself: it is EINTR exactly if a handler has run that ends
//! the call, and then a call that a handler ends (-514, -516) is not entered again.
//!
//! No instruction changes a flag, touches the stack, or an extended register.

use super::asm::{Asm, Label, Reg};
use super::gate::{Gate, SYSCALL_LEN};
use crate::snapshot::Registers;

/// What a thread goes home with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) registers: Registers,
    pub(super) mask: u64,
    /// Signals whose handlers do not end the call it was in: `mask`, and what that call blocks itself.
    pub(super) ending_mask: u64,
}

const SIG_SETMASK: u32 = 2;
pub(super) const EINTR: i64 = -4;
const ERESTARTSYS: i64 = -512;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

/// Room for the code and the data of one way home.
pub(super) const HOME_CODE: u64 = 384;
/// See [`HOME_CODE`].
pub(super) const HOME_DATA: u64 = 192;

/// Offsets in the data of a way home. The first words are not registers.
const MASK: u64 = 0;
const SIGARG: u64 = 8;
const ZERO_TIME: u64 = 24;
const RAX: u64 = 40;
const RIP: u64 = 48;
const RAX_EINTR: u64 = 56;
const RIP_EINTR: u64 = 64;
const OTHERS: u64 = 72;
const ENDING_MASK: u64 = 184;

/// Registers that come back one by one; `rax` and `rip` come last, `rsp` never left.
const RESTORED: [Reg; 14] = [
    Reg::Rcx,
    Reg::Rdx,
    Reg::Rbx,
    Reg::Rbp,
    Reg::Rsi,
    Reg::Rdi,
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];

fn value(r: &Registers, reg: Reg) -> u64 {
    match reg {
        Reg::Rax => r.rax,
        Reg::Rcx => r.rcx,
        Reg::Rdx => r.rdx,
        Reg::Rbx => r.rbx,
        Reg::Rbp => r.rbp,
        Reg::Rsi => r.rsi,
        Reg::Rdi => r.rdi,
        Reg::R8 => r.r8,
        Reg::R9 => r.r9,
        Reg::R10 => r.r10,
        Reg::R11 => r.r11,
        Reg::R12 => r.r12,
        Reg::R13 => r.r13,
        Reg::R14 => r.r14,
        Reg::R15 => r.r15,
    }
}

/// The call a thread was in and that must be entered again: restart code and number.
pub(super) fn interrupted_call(home: &Registers) -> Option<(i64, u64)> {
    let code = home.rax as i64;
    let restarts = (ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&code) && code != -515;
    ((home.orig_rax as i64) >= 0 && restarts).then_some((code, home.orig_rax))
}

/// The data of a way home, for address `at`.
pub(super) fn home_data(home: &Home, at: u64) -> Vec<u8> {
    let (mask, ending_mask) = (home.mask, home.ending_mask);
    let home = home.registers;
    let (mut rax, mut rip) = (home.rax, home.rip);
    let (mut rax_eintr, mut rip_eintr) = (rax, rip);
    if let Some((code, nr)) = interrupted_call(&home) {
        rip = home.rip.wrapping_sub(SYSCALL_LEN);
        rax = nr;
        if code == ERESTART_RESTARTBLOCK {
            rax = libc::SYS_restart_syscall as u64;
        }
        // Whether a handler ends a -512 call depends on its SA_RESTART; most have it.
        (rax_eintr, rip_eintr) = match code {
            ERESTARTNOHAND | ERESTART_RESTARTBLOCK => (EINTR as u64, home.rip),
            _ => (rax, rip),
        };
    }
    let mut words = vec![mask, at + ENDING_MASK, 8, 0, 0];
    words.extend([rax, rip, rax_eintr, rip_eintr]);
    words.extend(RESTORED.map(|reg| value(&home, reg)));
    words.push(ending_mask);
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Entries of a way home.
#[derive(Clone, Copy, Debug)]
pub(super) struct HomeEntries {
    /// Nothing has happened to the thread's call.
    pub(super) plain: u64,
    /// A handler has run: a call that handlers end has ended.
    pub(super) interrupted: u64,
}

/// Appends a way home that uses the data at `data`.
pub(super) fn emit_home(asm: &mut Asm, data: u64) -> HomeEntries {
    let labels = (asm.label(), asm.label());
    emit_home_at(asm, data, labels)
}

fn emit_home_at(asm: &mut Asm, data: u64, (start, interrupted): (Label, Label)) -> HomeEntries {
    let (unmask, quiet, eintr) = (asm.label(), asm.label(), asm.label());
    let plain = asm.here();
    asm.bind(start);
    asm.set(Reg::Rbx, 1);
    asm.jump(unmask);
    let interrupted_at = asm.here();
    asm.bind(interrupted);
    asm.set(Reg::Rbx, 0);
    asm.bind(unmask);
    asm.set(Reg::Rax, libc::SYS_pselect6 as u32);
    for reg in [Reg::Rdi, Reg::Rsi, Reg::Rdx, Reg::R10] {
        asm.set(reg, 0);
    }
    asm.address(Reg::R8, data + ZERO_TIME);
    asm.address(Reg::R9, data + SIGARG);
    asm.syscall();
    asm.copy(Reg::Rcx, Reg::Rax);
    asm.if_rcx_zero(quiet);
    asm.add(Reg::Rcx, Reg::Rax, -(EINTR as i32));
    asm.if_rcx_zero(interrupted);
    asm.bind(quiet);
    emit_set_mask(asm, data + MASK);
    let late = [Reg::Rcx, Reg::Rbx, Reg::R11];
    for reg in RESTORED {
        if !late.contains(&reg) {
            asm.load(reg, place(data, reg));
        }
    }
    asm.copy(Reg::Rcx, Reg::Rbx);
    asm.if_rcx_zero(eintr);
    for (rax, rip, label) in [(RAX, RIP, None), (RAX_EINTR, RIP_EINTR, Some(eintr))] {
        if let Some(label) = label {
            asm.bind(label);
        }
        for reg in late {
            asm.load(reg, place(data, reg));
        }
        asm.load(Reg::Rax, data + rax);
        asm.jump_through(data + rip);
    }
    HomeEntries {
        plain,
        interrupted: interrupted_at,
    }
}

fn place(data: u64, reg: Reg) -> u64 {
    let index = RESTORED.iter().position(|other| *other == reg);
    data + OTHERS + 8 * index.unwrap_or(0) as u64
}

/// `rt_sigprocmask(SIG_SETMASK, mask, NULL, 8)`.
fn emit_set_mask(asm: &mut Asm, mask: u64) {
    asm.set(Reg::Rax, libc::SYS_rt_sigprocmask as u32);
    asm.set(Reg::Rdi, SIG_SETMASK);
    asm.address(Reg::Rsi, mask);
    asm.set(Reg::Rdx, 0);
    asm.set(Reg::R10, 8);
    asm.syscall();
}

/// Registers with which a thread at a stop makes a call of ours at `address` (that of a call in a stub) as its first: see the
/// module's header.
pub(super) fn first_call(
    gate: Gate,
    home: &Registers,
    address: u64,
    nr: i64,
    args: [u64; 6],
) -> Registers {
    let mut registers = later_call(gate, home, address, nr, args);
    if let Some((code, _)) = interrupted_call(home) {
        gate.set_behind(&mut registers, address);
        registers.orig_rax = nr as u64;
        // The restart block belongs to the job's own call; without a handler both mean "again".
        registers.rax = match code {
            ERESTART_RESTARTBLOCK => ERESTARTNOHAND as u64,
            code => code as u64,
        };
    }
    registers
}

/// The same for a thread that is in our hands already.
pub(super) fn later_call(
    gate: Gate,
    home: &Registers,
    address: u64,
    nr: i64,
    args: [u64; 6],
) -> Registers {
    let [rdi, rsi, rdx, r10, r8, r9] = args;
    let mut registers = Registers {
        rax: nr as u64,
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..*home
    };
    gate.set_before(&mut registers, address);
    registers
}

/// Registers of a thread at an instruction of ours that is no call.
pub(super) fn at(home: &Registers, address: u64) -> Registers {
    Registers {
        rip: address,
        rax: 0,
        orig_rax: u64::MAX,
        ..*home
    }
}

/// Registers of a thread behind the call at `address`, with a result that is no mapping.
pub(super) fn after_call(gate: Gate, home: &Registers, address: u64) -> Registers {
    Registers {
        rip: address + gate.call_len(),
        rax: -i64::from(libc::ENOSYS) as u64,
        orig_rax: u64::MAX,
        ..*home
    }
}

/// The stub in the tail of the vDSO.
#[derive(Debug)]
pub(super) struct TailStub {
    /// Its bytes, data included.
    pub(super) bytes: Vec<u8>,
    /// Address of its `syscall`.
    pub(super) call: u64,
    /// Address of the word that says how long the mapping is that must be undone if we are not
    /// there any more when the call returns one; 0: none.
    pub(super) undo: u64,
}

/// Room for a tail stub.
pub(super) const TAIL_LEN: u64 = TAIL_CODE + HOME_DATA + 16;
const TAIL_CODE: u64 = 104 + HOME_CODE;
/// Bytes at the beginning of every tail stub that depend on nothing.
pub(super) const TAIL_MARK: usize = 11;

/// The tail stub for address `at`.
pub(super) fn tail_stub(gate: Gate, home: &Home, at: u64) -> Option<TailStub> {
    let data = (at + TAIL_CODE).next_multiple_of(8);
    let undo = data + HOME_DATA;
    let mut asm = Asm::at(at, gate);
    let (handled, unmap, plain, interrupted) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.syscall();
    asm.add(Reg::Rcx, Reg::Rax, -(EINTR as i32));
    asm.if_rcx_zero(handled);
    asm.load(Reg::Rcx, undo);
    asm.if_rcx_zero(plain);
    asm.error_to_rcx();
    asm.if_rcx_zero(unmap);
    asm.jump(plain);
    asm.bind(handled);
    asm.jump(interrupted);
    asm.bind(unmap);
    asm.copy(Reg::Rdi, Reg::Rax);
    asm.load(Reg::Rsi, undo);
    asm.set(Reg::Rax, libc::SYS_munmap as u32);
    asm.syscall();
    emit_home_at(&mut asm, data, (plain, interrupted));
    let mut bytes = asm.finish()?;
    if bytes.len() as u64 > TAIL_CODE {
        return None;
    }
    bytes.resize(usize::try_from(data - at).ok()?, 0);
    bytes.extend(home_data(home, data));
    bytes.resize(usize::try_from(undo - at).ok()?, 0);
    bytes.extend([0; 8]);
    Some(TailStub {
        bytes,
        call: at,
        undo,
    })
}

#[cfg(test)]
mod tests {
    use super::super::runner::runner;
    use super::*;
    use iced_x86::{Code, Decoder, DecoderOptions, RflagsBits};

    fn instructions(code: &[u8], at: u64) -> Vec<iced_x86::Instruction> {
        Decoder::with_ip(64, code, at, DecoderOptions::NONE)
            .iter()
            .collect()
    }

    #[test]
    fn no_instruction_changes_a_flag_or_the_stack() {
        let home = Home {
            registers: Registers::default(),
            mask: 0,
            ending_mask: 0,
        };
        let mut asm = Asm::at(0x1000, Gate::default());
        emit_home(&mut asm, 0x5000);
        let way_home = asm.finish().expect("bound");
        assert!(way_home.len() as u64 <= HOME_CODE, "{}", way_home.len());
        let runner = runner(Gate::default(), 0x1000).expect("bound").bytes;
        let tail = tail_stub(Gate::default(), &home, 0x1000)
            .expect("fits")
            .bytes;
        assert!(tail.len() as u64 <= TAIL_LEN);
        // Behind the two jumps that leave a tail stub there is only padding and data.
        let mut jumps = 0;
        for code in [&way_home[..], &runner[..], &tail[..]] {
            for instruction in instructions(code, 0x1000) {
                if code.len() == tail.len() && jumps == 2 {
                    break;
                }
                let name = format!("{:?}", instruction.code());
                if code.len() == tail.len() && instruction.code() == Code::Jmp_rm64 {
                    jumps += 1;
                }
                // The kernel gives back the flags it was entered with.
                if instruction.code() != Code::Syscall {
                    assert_eq!(instruction.rflags_modified(), RflagsBits::NONE, "{name}");
                }
                assert_eq!(instruction.stack_pointer_increment(), 0, "{name}");
                assert!(!instruction.is_invalid(), "{name}");
            }
        }
    }

    #[test]
    fn a_call_comes_back_as_the_kernel_would_have_it() {
        let in_call = |code: i64| Registers {
            rax: code as u64,
            orig_rax: libc::SYS_poll as u64,
            rip: 0x4002,
            ..Registers::default()
        };
        let words = |registers: Registers| -> Vec<u64> {
            let home = Home {
                registers,
                mask: 5,
                ending_mask: 7,
            };
            home_data(&home, 0x100)
                .as_chunks::<8>()
                .0
                .iter()
                .map(|raw| u64::from_le_bytes(*raw))
                .collect()
        };
        let poll = libc::SYS_poll as u64;
        let restart = libc::SYS_restart_syscall as u64;
        let eintr = EINTR as u64;
        assert_eq!(words(in_call(-516))[5..9], [restart, 0x4000, eintr, 0x4002]);
        assert_eq!(words(in_call(-514))[5..9], [poll, 0x4000, eintr, 0x4002]);
        assert_eq!(words(in_call(-513))[5..9], [poll, 0x4000, poll, 0x4000]);
        assert_eq!(words(in_call(7))[5..9], [7, 0x4002, 7, 0x4002]);
        let data = words(in_call(-514));
        assert_eq!((data[0], data[1]), (5, 0x100 + ENDING_MASK));
        assert_eq!(data[(ENDING_MASK / 8) as usize..], [7]);
        assert_eq!(data.len() as u64 * 8, HOME_DATA);
        let first = first_call(
            Gate::default(),
            &in_call(-516),
            0x9000,
            libc::SYS_mmap,
            [0; 6],
        );
        assert_eq!((first.rax as i64, first.rip), (-514, 0x9002));
        assert_eq!(first.orig_rax, libc::SYS_mmap as u64);
        let computing = Registers {
            orig_rax: u64::MAX,
            rax: (-516i64) as u64,
            ..Registers::default()
        };
        let first = first_call(Gate::default(), &computing, 0x9000, libc::SYS_mmap, [0; 6]);
        assert_eq!((first.rax, first.rip), (libc::SYS_mmap as u64, 0x9000));
    }
}
