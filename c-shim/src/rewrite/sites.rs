//! `syscall` instructions and the windows round them.

use super::functions::{Functions, Table, UnwindError};
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    OpKind, Register,
};

/// The instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Length of a `jmp` to anywhere within 2 GiB.
const JUMP: u64 = 5;

/// Which call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Set by the instruction before.
    Known(u32),
    /// Set elsewhere.
    Computed,
}

/// A `syscall` that can be led elsewhere. Addresses are relative to the object's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The `syscall` instruction.
    pub syscall: u64,
    /// Whole instructions, at least 5 bytes; the jump is written at the beginning.
    pub window: Range<u64>,
    /// Which call it is.
    pub number: Number,
}

impl Site {
    /// The instructions of the window before the `syscall`.
    #[must_use]
    pub fn before(&self) -> Range<u64> {
        self.window.start..self.syscall.min(self.window.end)
    }

    /// The instructions of the window behind it.
    #[must_use]
    pub fn after(&self) -> Range<u64> {
        (self.syscall + 2).min(self.window.end)..self.window.end
    }

    /// The `syscall` itself stays as it is.
    #[must_use]
    pub fn keeps_syscall(&self) -> bool {
        self.window.end <= self.syscall
    }
}

/// Why there is no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// An instruction that would have to be moved depends on where it is.
    Immovable,
    /// Something jumps into it, or could.
    Entered,
    /// The function was not decoded to its end.
    Undecoded,
    /// It lies in no function that is known.
    Unknown,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// What can be led elsewhere.
    pub sites: Vec<Site>,
    /// What cannot: the instruction, which call it is, and why.
    pub refused: Vec<(u64, Number, Refused)>,
}

/// Finds the `syscall` instructions of an object that is mapped as `object`, with its code at `text` and its functions told by
/// `table`, whose number is `wanted`.
///
/// # Errors
/// [`UnwindError`].
pub fn find(
    object: &[u8],
    text: Range<u64>,
    table: &Table,
    wanted: impl Fn(Number) -> bool,
) -> Result<Found, UnwindError> {
    let all = Functions::new(object, table)?.collect::<Result<Vec<_>, _>>()?;
    let ordinary = all.iter().filter(|function| !function.is_signal_frame);
    let functions: Vec<Range<u64>> = ordinary.map(|function| function.range.clone()).collect();
    let mut targets = Vec::new();
    for function in &functions {
        for instruction in decode(object, function) {
            if has_near_target(&instruction) {
                targets.push(instruction.near_branch_target());
            }
        }
    }
    targets.sort_unstable();
    targets.dedup();
    let mut found = Found::default();
    let mut instructions = Vec::new();
    for function in &functions {
        let ends_before_one =
            object.get(function.end as usize..function.end as usize + 2) == Some(&SYSCALL[..]);
        if !has_syscall(object, function) && !ends_before_one {
            continue;
        }
        instructions.clear();
        instructions.extend(decode(object, function));
        let body = Body::new(&instructions, function, &targets);
        for (index, instruction) in instructions.iter().enumerate() {
            if instruction.code() != Code::Syscall {
                continue;
            }
            let number = body.number(index);
            if !wanted(number) {
                continue;
            }
            match body.window(index) {
                Ok(window) => found.sites.push(Site {
                    syscall: instruction.ip(),
                    window,
                    number,
                }),
                Err(why) => found.refused.push((instruction.ip(), number, why)),
            }
        }
        // clone(2) and clone3(2): their descriptions end where the child begins.
        if let (true, Some(last)) = (ends_before_one, instructions.last())
            && sets_eax(last)
            && body.decoded
            && !body.is_target(function.end)
            && wanted(Number::Known(last.immediate32()))
        {
            found.sites.push(Site {
                syscall: function.end,
                window: last.ip()..last.next_ip(),
                number: Number::Known(last.immediate32()),
            });
        }
    }
    // clone(2) and clone3(2) again: the child's instruction is behind the end of their description.
    let known = |at: u64| {
        all.iter()
            .any(|function| function.range.contains(&at) || function.range.end == at)
    };
    let outside = occurrences(object, &text).filter(|at| !known(*at));
    let outside = outside.map(|at| (at, Number::Computed, Refused::Unknown));
    found.refused.extend(outside);
    Ok(found)
}

/// Where the bytes of the instruction are.
fn occurrences<'a>(object: &'a [u8], text: &Range<u64>) -> impl Iterator<Item = u64> + 'a {
    let start = text.start;
    let pairs = bytes(object, text).windows(2).enumerate();
    pairs.filter_map(move |(at, pair)| (pair == SYSCALL).then_some(start + at as u64))
}

/// Makes the decoder allocate what it keeps.
pub fn make_tables() {
    let decoder = Decoder::with_ip(64, &SYSCALL, 0, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    for instruction in decoder {
        let _ = info.info(&instruction);
    }
}

fn bytes<'a>(object: &'a [u8], function: &Range<u64>) -> &'a [u8] {
    // Functions are known to lie in the object.
    object
        .get(function.start as usize..function.end as usize)
        .unwrap_or_default()
}

fn has_syscall(object: &[u8], function: &Range<u64>) -> bool {
    bytes(object, function)
        .windows(2)
        .any(|pair| pair == SYSCALL)
}

fn decode<'a>(object: &'a [u8], function: &Range<u64>) -> impl Iterator<Item = Instruction> + 'a {
    let bytes = bytes(object, function);
    Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE).into_iter()
}

fn has_near_target(instruction: &Instruction) -> bool {
    instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64
}

/// A function's instructions.
struct Body<'a> {
    instructions: &'a [Instruction],
    targets: &'a [u64],
    decoded: bool,
    /// It leads on by an address that is computed: that of a case, perhaps.
    computed_jumps: bool,
}

impl<'a> Body<'a> {
    fn new(instructions: &'a [Instruction], function: &Range<u64>, targets: &'a [u64]) -> Self {
        let last = instructions.last().map(Instruction::next_ip);
        let bad = instructions.iter().any(Instruction::is_invalid);
        let computed = |one: &Instruction| one.flow_control() == FlowControl::IndirectBranch;
        Body {
            instructions,
            targets,
            decoded: !bad && last == Some(function.end),
            computed_jumps: instructions.iter().any(computed),
        }
    }

    /// What sets the number last, if nothing jumps in between. (A case of a jump table that did would make its call unseen, but
    /// nothing would be overwritten.)
    fn number(&self, index: usize) -> Number {
        let mut info = InstructionInfoFactory::new();
        for at in (0..index).rev() {
            let instruction = &self.instructions[at];
            let followed = &self.instructions[at + 1];
            if self.is_target(followed.ip()) {
                return Number::Computed;
            }
            if sets_eax(instruction) || sets_rax(instruction) {
                return Number::Known(instruction.immediate32());
            }
            if clears_eax(instruction) {
                return Number::Known(0);
            }
            let used = info.info(instruction);
            let changes = used.used_registers().iter().any(|used| {
                let whole = used.register().full_register() == Register::RAX;
                whole && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
            });
            let goes_on = matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            );
            if changes || !goes_on {
                return Number::Computed;
            }
        }
        Number::Computed
    }

    fn is_target(&self, address: u64) -> bool {
        self.targets.binary_search(&address).is_ok()
    }

    fn window(&self, index: usize) -> Result<Range<u64>, Refused> {
        let instructions = self.instructions;
        let syscall = instructions[index].ip();
        if !self.decoded {
            return Err(Refused::Undecoded);
        }
        if index > 0 && sets_eax(&instructions[index - 1]) && !self.is_target(syscall) {
            let before = &instructions[index - 1];
            if before.len() as u64 == JUMP {
                return Ok(before.ip()..before.next_ip());
            }
        }
        let mut why = Refused::Immovable;
        // With nothing before it, or one or two instructions.
        for first in (index.saturating_sub(2)..=index).rev() {
            match self.window_from(first, index) {
                Ok(window) => return Ok(window),
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    fn window_from(&self, first: usize, syscall: usize) -> Result<Range<u64>, Refused> {
        let start = self.instructions[first].ip();
        for index in first.. {
            let Some(instruction) = self.instructions.get(index) else {
                return Err(Refused::Immovable);
            };
            if index != syscall && !is_movable(instruction, index > syscall) {
                return Err(Refused::Immovable);
            }
            if index > first && (self.computed_jumps || self.is_target(instruction.ip())) {
                return Err(Refused::Entered);
            }
            if index >= syscall && instruction.next_ip() - start >= JUMP {
                return Ok(start..instruction.next_ip());
            }
            // Behind a return is something else.
            if instruction.flow_control() == FlowControl::Return {
                return Err(Refused::Immovable);
            }
        }
        Err(Refused::Immovable)
    }
}

fn sets_eax(instruction: &Instruction) -> bool {
    instruction.code() == Code::Mov_r32_imm32 && instruction.op0_register() == Register::EAX
}

fn sets_rax(instruction: &Instruction) -> bool {
    instruction.code() == Code::Mov_rm64_imm32 && instruction.op0_register() == Register::RAX
}

fn clears_eax(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Xor_r32_rm32 | Code::Xor_rm32_r32)
        && instruction.op0_register() == Register::EAX
        && instruction.op1_kind() == OpKind::Register
        && instruction.op1_register() == Register::EAX
}

/// It does the same elsewhere.
fn is_movable(instruction: &Instruction, behind: bool) -> bool {
    let flow = instruction.flow_control();
    let goes_on = flow == FlowControl::Next || behind && flow == FlowControl::Return;
    goes_on && !instruction.is_ip_rel_memory_operand() && instruction.code() != Code::Syscall
}
