//! Just enough of an assembler for the stubs: position-dependent bytes, made for the place they go to.
//!
//! None of these instructions changes a flag or touches the stack: a stub leaves both as it found them,
//! so it need not put them back. (`jrcxz` is the only conditional jump that reads no flag.)

use super::gate::Gate;

/// A general register, by its number in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Reg {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rbx = 3,
    Rbp = 5,
    Rsi = 6,
    Rdi = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
    R12 = 12,
    R13 = 13,
    R14 = 14,
    R15 = 15,
}

/// A place in the code that may be jumped to before it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Code under construction, for address `base`.
#[derive(Debug)]
pub(super) struct Asm {
    base: u64,
    code: Vec<u8>,
    labels: Vec<Option<usize>>,
    gate: Gate,
    /// Where a displacement goes, how many bytes it has, and to which label.
    jumps: Vec<(usize, usize, Label)>,
}

impl Asm {
    pub(super) fn at(base: u64, gate: Gate) -> Self {
        Asm {
            base,
            gate,
            code: vec![],
            labels: vec![],
            jumps: vec![],
        }
    }

    /// Address of the next instruction.
    pub(super) fn here(&self) -> u64 {
        self.base + self.code.len() as u64
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `mov r32, imm32`: the upper half becomes zero.
    pub(super) fn set(&mut self, reg: Reg, value: u32) {
        if reg as u8 >= 8 {
            self.code.push(0x41);
        }
        self.code.push(0xb8 + (reg as u8 & 7));
        self.code.extend(value.to_le_bytes());
    }

    fn rex(&mut self, reg: Reg, base: u8) {
        self.code.push(0x48 | (reg as u8 >> 3) << 2 | (base >> 3));
    }

    fn rip_operand(&mut self, opcode: u8, reg: Reg, address: u64) {
        self.rex(reg, 0);
        self.code.extend([opcode, (reg as u8 & 7) << 3 | 5]);
        let after = self.here() + 4;
        let displacement = address.wrapping_sub(after) as u32;
        self.code.extend(displacement.to_le_bytes());
    }

    /// `mov reg, [address]`, reached relative to `rip`.
    pub(super) fn load(&mut self, reg: Reg, address: u64) {
        self.rip_operand(0x8b, reg, address);
    }

    /// `lea reg, [address]`, reached relative to `rip`.
    pub(super) fn address(&mut self, reg: Reg, address: u64) {
        self.rip_operand(0x8d, reg, address);
    }

    fn based_operand(&mut self, opcode: u8, reg: Reg, base: Reg, offset: i32) {
        self.rex(reg, base as u8);
        self.code
            .extend([opcode, 0x80 | (reg as u8 & 7) << 3 | (base as u8 & 7)]);
        if base as u8 & 7 == 4 {
            self.code.push(0x24);
        }
        self.code.extend(offset.to_le_bytes());
    }

    /// `mov reg, [base + offset]`.
    pub(super) fn load_at(&mut self, reg: Reg, base: Reg, offset: i32) {
        self.based_operand(0x8b, reg, base, offset);
    }

    /// `mov [base + offset], reg`.
    pub(super) fn store_at(&mut self, base: Reg, offset: i32, reg: Reg) {
        self.based_operand(0x89, reg, base, offset);
    }

    /// `lea reg, [base + offset]`.
    pub(super) fn add(&mut self, reg: Reg, base: Reg, offset: i32) {
        self.based_operand(0x8d, reg, base, offset);
    }

    /// `mov to, from`.
    pub(super) fn copy(&mut self, to: Reg, from: Reg) {
        self.rex(from, to as u8);
        self.code
            .extend([0x89, 0xc0 | (from as u8 & 7) << 3 | (to as u8 & 7)]);
    }

    /// `bswap rax; movzx ecx, ax; bswap rax`: `rcx` is 0 if the upper 16 bits of `rax` are, as they
    /// are in addresses and ids, but not in errors.
    pub(super) fn error_to_rcx(&mut self) {
        self.code
            .extend([0x48, 0x0f, 0xc8, 0x0f, 0xb7, 0xc8, 0x48, 0x0f, 0xc8]);
    }

    /// `syscall`, or the detour to one; that changes `r14`.
    pub(super) fn syscall(&mut self) {
        let Some(gate) = self.gate.0 else {
            self.code.extend([0x0f, 0x05]);
            return;
        };
        let begin = self.here();
        self.address(Reg::R14, begin + self.gate.call_len());
        self.code.extend([0xff, 0x25, 0, 0, 0, 0]);
        self.code.extend(gate.to_le_bytes());
    }

    /// An instruction that ends the process, where control can never come.
    pub(super) fn never(&mut self) {
        self.code.extend([0x0f, 0x0b]);
    }

    /// Jumps if `rcx` is 0.
    pub(super) fn if_rcx_zero(&mut self, label: Label) {
        self.code.extend([0xe3, 0]);
        self.jumps.push((self.code.len() - 1, 1, label));
    }

    pub(super) fn jump(&mut self, label: Label) {
        self.code.extend([0xe9, 0, 0, 0, 0]);
        self.jumps.push((self.code.len() - 4, 4, label));
    }

    /// `jmp [address]`, reached relative to `rip`.
    pub(super) fn jump_through(&mut self, address: u64) {
        self.code.extend([0xff, 0x25]);
        let displacement = address.wrapping_sub(self.here() + 4) as u32;
        self.code.extend(displacement.to_le_bytes());
    }

    /// `jmp [base + offset]`.
    pub(super) fn jump_through_at(&mut self, base: Reg, offset: i32) {
        if base as u8 >= 8 {
            self.code.push(0x41);
        }
        self.code.extend([0xff, 0x80 | 4 << 3 | (base as u8 & 7)]);
        self.code.extend(offset.to_le_bytes());
    }

    /// The bytes. `None` if a label was never bound or is too far away: a mistake in the stub.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        for (place, size, label) in std::mem::take(&mut self.jumps) {
            let target = self.labels[label.0]?;
            let distance = i64::try_from(target).ok()? - i64::try_from(place + size).ok()?;
            let bytes = distance.to_le_bytes();
            if size == 1 {
                i8::try_from(distance).ok()?;
            }
            self.code[place..place + size].copy_from_slice(&bytes[..size]);
        }
        Some(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

    #[test]
    fn bytes_mean_what_was_asked_for() {
        let mut asm = Asm::at(0x10000, Gate::default());
        let end = asm.label();
        asm.set(Reg::Rdi, 7);
        asm.set(Reg::R10, 8);
        asm.load(Reg::R9, 0x20000);
        asm.address(Reg::Rsi, 0x20008);
        asm.load_at(Reg::Rax, Reg::R12, 16);
        asm.load_at(Reg::R8, Reg::Rbx, -8);
        asm.store_at(Reg::Rbx, 24, Reg::Rax);
        asm.add(Reg::R13, Reg::R13, -1);
        asm.copy(Reg::R8, Reg::Rax);
        asm.copy(Reg::Rcx, Reg::R13);
        asm.if_rcx_zero(end);
        asm.error_to_rcx();
        asm.syscall();
        asm.jump(end);
        asm.jump_through(0x20010);
        asm.bind(end);
        asm.jump_through_at(Reg::Rbx, 32);
        let code = asm.finish().expect("bound");
        let got: Vec<Instruction> = Decoder::with_ip(64, &code, 0x10000, DecoderOptions::NONE)
            .iter()
            .collect();
        let codes: Vec<Code> = got.iter().map(Instruction::code).collect();
        assert_eq!(
            codes,
            [
                Code::Mov_r32_imm32,
                Code::Mov_r32_imm32,
                Code::Mov_r64_rm64,
                Code::Lea_r64_m,
                Code::Mov_r64_rm64,
                Code::Mov_r64_rm64,
                Code::Mov_rm64_r64,
                Code::Lea_r64_m,
                Code::Mov_rm64_r64,
                Code::Mov_rm64_r64,
                Code::Jrcxz_rel8_64,
                Code::Bswap_r64,
                Code::Movzx_r32_rm16,
                Code::Bswap_r64,
                Code::Syscall,
                Code::Jmp_rel32_64,
                Code::Jmp_rm64,
                Code::Jmp_rm64,
            ]
        );
        assert_eq!(
            (got[0].op0_register(), got[0].immediate32()),
            (Register::EDI, 7)
        );
        assert_eq!(
            (got[1].op0_register(), got[1].immediate32()),
            (Register::R10D, 8)
        );
        assert_eq!(
            (got[2].op0_register(), got[2].ip_rel_memory_address()),
            (Register::R9, 0x20000)
        );
        assert_eq!(
            (got[3].op0_register(), got[3].ip_rel_memory_address()),
            (Register::RSI, 0x20008)
        );
        let based = |i: usize| {
            let displacement = got[i].memory_displacement64() as i64;
            (got[i].memory_base(), displacement)
        };
        assert_eq!(
            (got[4].op0_register(), based(4)),
            (Register::RAX, (Register::R12, 16))
        );
        assert_eq!(
            (got[5].op0_register(), based(5)),
            (Register::R8, (Register::RBX, -8))
        );
        assert_eq!(
            (got[6].op1_register(), based(6)),
            (Register::RAX, (Register::RBX, 24))
        );
        assert_eq!(
            (got[7].op0_register(), based(7)),
            (Register::R13, (Register::R13, -1))
        );
        assert_eq!(
            (got[8].op0_register(), got[8].op1_register()),
            (Register::R8, Register::RAX)
        );
        assert_eq!(
            (got[9].op0_register(), got[9].op1_register()),
            (Register::RCX, Register::R13)
        );
        let last = got[17].ip();
        assert_eq!(got[10].near_branch_target(), last);
        assert_eq!(got[15].near_branch_target(), last);
        assert_eq!(got[16].ip_rel_memory_address(), 0x20010);
        assert_eq!(based(17), (Register::RBX, 32));
    }

    #[test]
    fn a_label_that_is_too_far_is_noticed() {
        let mut asm = Asm::at(0, Gate::default());
        let end = asm.label();
        asm.if_rcx_zero(end);
        for _ in 0..100 {
            asm.syscall();
        }
        asm.bind(end);
        assert_eq!(asm.finish(), None);
    }
}
