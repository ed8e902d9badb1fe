//! A function's instructions, and what they tell of a `syscall` among them.

use super::sites::{Number, Refused};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register, RflagsBits,
};

/// Length of a `jmp` to anywhere within 2 GiB.
const JUMP: u64 = 5;
/// Instructions that may stand between the one that is replaced and the `syscall`.
const MOST_BETWEEN: usize = 4;
/// What comparisons set and conditions ask.
const CONDITIONS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// A function's instructions.
pub(super) struct Body<'a> {
    instructions: &'a [Instruction],
    targets: &'a [u64],
    pub(super) decoded: bool,
    /// It leads on by an address that is computed: that of a case, perhaps.
    computed_jumps: bool,
    /// Exceptions may lead to anywhere in it.
    catches: bool,
    /// Which instructions something that is known leads to.
    reached: Vec<bool>,
}

impl<'a> Body<'a> {
    pub(super) fn new(
        instructions: &'a [Instruction],
        function: &Range<u64>,
        catches: bool,
        targets: &'a [u64],
    ) -> Self {
        let last = instructions.last().map(Instruction::next_ip);
        let bad = instructions.iter().any(Instruction::is_invalid);
        let computed = |one: &Instruction| one.flow_control() == FlowControl::IndirectBranch;
        Body {
            instructions,
            targets,
            decoded: !bad && last == Some(function.end),
            computed_jumps: instructions.iter().any(computed),
            catches,
            reached: reached(instructions, inside(targets, function)),
        }
    }

    /// Something leads there. (Nothing leads to data.)
    pub(super) fn is_reached(&self, index: usize, number: Number) -> bool {
        let perhaps = self.computed_jumps || self.catches;
        self.reached[index] || perhaps && number != Number::Computed
    }

    /// What sets the number last, if nothing jumps in between. (A case of a jump table that did would make its call unseen, but
    /// nothing would be overwritten.)
    pub(super) fn number(&self, index: usize) -> Number {
        let setter = self.setter(index, Register::RAX);
        let number = setter.and_then(|at| constant(&self.instructions[at]));
        number.map_or(Number::Computed, Number::Known)
    }

    /// The same, also where it is a copy of a register that is set before, or in one way only in all of the function.
    pub(super) fn number_by_copy(&self, index: usize) -> Number {
        let value = |register, index| {
            let setter = self.setter(index, register);
            let set = setter.and_then(|at| constant(&self.instructions[at]));
            set.or_else(|| self.only_value(register))
        };
        let setter = self.setter(index, Register::RAX);
        let copied = setter.and_then(|at| Some((copied(&self.instructions[at])?, at)));
        match copied.and_then(|(register, at)| value(register, at)) {
            Some(number) => Number::Known(number),
            None => self.number(index),
        }
    }

    /// The instruction that sets a register last, if nothing jumps in between.
    fn setter(&self, index: usize, register: Register) -> Option<usize> {
        let mut info = InstructionInfoFactory::new();
        for at in (0..index).rev() {
            let instruction = &self.instructions[at];
            if self.is_target(self.instructions[at + 1].ip()) {
                return None;
            }
            if writes(&mut info, instruction, register) {
                return Some(at);
            }
            let goes_on = match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => true,
                // Its result is in rax.
                _ => instruction.code() == Code::Syscall && register != Register::RAX,
            };
            if !goes_on {
                return None;
            }
        }
        None
    }

    /// The value of a register that the function sets before it uses it otherwise, and always to the same.
    fn only_value(&self, register: Register) -> Option<u32> {
        let mut info = InstructionInfoFactory::new();
        let mut value = None;
        for instruction in self.instructions {
            let is_saved = matches!(instruction.code(), Code::Push_r64 | Code::Pop_r64);
            let used = info.info(instruction).used_registers();
            let mentions = used
                .iter()
                .any(|used| used.register().full_register() == register);
            if is_saved || !mentions {
                continue;
            }
            let set = constant(instruction)
                .filter(|_| instruction.op0_register().full_register() == register);
            match (value, set) {
                (None, None) => return None,
                (None, Some(_)) => value = set,
                (Some(one), Some(other)) if one != other => return None,
                (Some(_), None) if writes(&mut info, instruction, register) => return None,
                _ => {}
            }
        }
        value
    }

    pub(super) fn is_target(&self, address: u64) -> bool {
        self.targets.binary_search(&address).is_ok()
    }

    /// Where the jump is written, from this address on.
    pub(super) fn window(&self, index: usize, from: u64) -> Result<Range<u64>, Refused> {
        if !self.decoded {
            return Err(Refused::Undecoded);
        }
        if let Some(window) = self.window_before(index, from) {
            return Ok(window);
        }
        let mut why = Refused::Immovable;
        // With nothing before it, or one or two instructions.
        for first in (index.saturating_sub(2)..=index).rev() {
            match self.window_from(first, index, from) {
                Ok(window) => return Ok(window),
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    /// An instruction before the `syscall` that is as long as a jump.
    fn window_before(&self, index: usize, from: u64) -> Option<Range<u64>> {
        for at in (index.saturating_sub(1 + MOST_BETWEEN)..index).rev() {
            let one = &self.instructions[at];
            let is_entered = self.is_target(self.instructions[at + 1].ip());
            if is_entered || !is_movable(one, false) || one.ip() < from {
                return None;
            }
            if one.len() as u64 >= JUMP {
                return Some(one.ip()..one.next_ip());
            }
        }
        None
    }

    fn window_from(&self, first: usize, syscall: usize, from: u64) -> Result<Range<u64>, Refused> {
        let start = self.instructions[first].ip();
        if start < from {
            return Err(Refused::Entered);
        }
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

    /// Somebody may ask behind the `syscall` what was compared before it: it leaves the flags as they are.
    pub(super) fn needs_flags(&self, index: usize) -> bool {
        let mut left = CONDITIONS;
        for instruction in &self.instructions[index + 1..] {
            if instruction.rflags_read() & left != 0 {
                return true;
            }
            left &= !instruction.rflags_modified();
            match instruction.flow_control() {
                _ if left == 0 => return false,
                FlowControl::Next => {}
                _ if instruction.code() == Code::Syscall => {}
                // No calling convention keeps them.
                FlowControl::Return | FlowControl::Call | FlowControl::IndirectCall => {
                    return false;
                }
                _ => return true,
            }
        }
        true
    }
}

/// Those of the targets that lie in a function.
fn inside<'a>(targets: &'a [u64], function: &Range<u64>) -> &'a [u64] {
    let before = |end: u64| targets.partition_point(|target| *target < end);
    targets
        .get(before(function.start)..before(function.end))
        .unwrap_or_default()
}

/// Which instructions something that is known leads to: the first, those that are jumped to, and what comes behind these.
fn reached(instructions: &[Instruction], targets: &[u64]) -> Vec<bool> {
    let mut reached = vec![false; instructions.len()];
    let place = |at: u64| instructions.binary_search_by_key(&at, Instruction::ip).ok();
    let mut left: Vec<usize> = targets.iter().filter_map(|target| place(*target)).collect();
    left.push(0);
    while let Some(first) = left.pop() {
        for at in first..instructions.len() {
            let instruction = &instructions[at];
            if core::mem::replace(&mut reached[at], true) || instruction.is_invalid() {
                break;
            }
            if has_near_target(instruction) {
                left.extend(place(instruction.near_branch_target()));
            }
            let ends = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            );
            if ends {
                break;
            }
        }
    }
    reached
}

pub(super) fn has_near_target(instruction: &Instruction) -> bool {
    instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64
}

fn writes(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    let mut used = info.info(instruction).used_registers().iter();
    used.any(|used| {
        let whole = used.register().full_register() == register;
        whole && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
    })
}

/// What a register is set to.
pub(super) fn constant(instruction: &Instruction) -> Option<u32> {
    let same = |one: &Instruction| {
        one.op1_kind() == OpKind::Register && one.op0_register() == one.op1_register()
    };
    match instruction.code() {
        Code::Mov_r32_imm32 => Some(instruction.immediate32()),
        Code::Mov_rm64_imm32 if instruction.op0_kind() == OpKind::Register => {
            Some(instruction.immediate32())
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 if same(instruction) => Some(0),
        _ => None,
    }
}

/// The register that this one copies.
fn copied(instruction: &Instruction) -> Option<Register> {
    let moves = matches!(
        instruction.code(),
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
    );
    let between =
        instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
    (moves && between).then(|| instruction.op1_register().full_register())
}

/// It does the same elsewhere.
fn is_movable(instruction: &Instruction, behind: bool) -> bool {
    let flow = instruction.flow_control();
    let goes_on = flow == FlowControl::Next || behind && flow == FlowControl::Return;
    goes_on && !instruction.is_ip_rel_memory_operand() && instruction.code() != Code::Syscall
}
