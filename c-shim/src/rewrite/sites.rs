//! `syscall` instructions and the windows round them.

use super::body::{Body, constant, has_near_target};
use super::bytes::{SYSCALL, add_far_targets, lies_in, occurrences, slice};
use super::functions::{Function, Functions, Table, UnwindError};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Register,
};

/// How far before or behind a window a short jump may be that leads into it.
const NEAR: u64 = 256;
/// Functions that are longer are not looked at: no compiler makes them, and memory is limited.
const MOST_BYTES: u64 = 512 << 10;

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
    /// What was compared before is asked behind it.
    pub needs_flags: bool,
}

impl Site {
    /// The instructions from the window's beginning to the `syscall`.
    #[must_use]
    pub fn before(&self) -> Range<u64> {
        self.window.start..self.syscall
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
    /// It lies in a function, and nothing leads to it.
    Unreached,
}

/// What cannot be led elsewhere, or looks only as if it could be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The bytes of the instruction.
    pub at: u64,
    /// Which call it would be.
    pub number: Number,
    /// Why there is no site.
    pub why: Refused,
}

impl Missed {
    /// It is no data: it is executed, or instructions that set its number are before it.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        match self.why {
            Refused::Immovable | Refused::Entered | Refused::Undecoded => true,
            Refused::Unknown => self.number != Number::Computed,
            Refused::Unreached => false,
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// What can be led elsewhere.
    pub sites: Vec<Site>,
    /// What cannot.
    pub missed: Vec<Missed>,
}

/// Finds the `syscall` instructions of an object that is mapped as `object`, with its code at `code` and its functions told by
/// `table`, whose number is `wanted`. Of what lies in no function all are listed.
///
/// # Errors
/// [`UnwindError`].
pub fn find(
    object: &[u8],
    code: &[Range<u64>],
    table: Option<&Table>,
    wanted: impl Fn(Number) -> bool,
) -> Result<Found, UnwindError> {
    let bytes = occurrences(object, code);
    let (functions, unknown) = round(object, &bytes, table)?;
    let calling: Vec<&Function> = functions.iter().filter(|one| calls(object, one)).collect();
    let ranges: Vec<Range<u64>> = calling.iter().map(|one| one.range.clone()).collect();
    let targets = targets(object, code, &functions, &ranges);
    let mut found = Found::default();
    let mut instructions = Vec::new();
    for function in calling {
        instructions.clear();
        instructions.extend(decode(object, &function.range));
        let body = Body::new(&instructions, &function.range, function.catches, &targets);
        look_at(&instructions, &body, &wanted, &mut found);
        found.sites.extend(
            site_behind(object, function, &instructions, &body).filter(|site| wanted(site.number)),
        );
    }
    let unknown = unknown.into_iter().map(|at| Missed {
        at,
        number: number_before(object, at),
        why: Refused::Unknown,
    });
    found.missed.extend(unknown);
    Ok(found)
}

/// Adds the calls of one function.
fn look_at(
    instructions: &[Instruction],
    body: &Body<'_>,
    wanted: &impl Fn(Number) -> bool,
    found: &mut Found,
) {
    let mut free = 0;
    for (index, instruction) in instructions.iter().enumerate() {
        if instruction.code() != Code::Syscall {
            continue;
        }
        let number = body.number(index);
        if !wanted(number) {
            continue;
        }
        let syscall = instruction.ip();
        let window = if body.is_reached(index, number) {
            body.window(index, free)
        } else {
            Err(Refused::Unreached)
        };
        match window {
            Ok(window) => {
                free = window.end;
                found.sites.push(Site {
                    syscall,
                    window,
                    number,
                    needs_flags: body.needs_flags(index),
                });
            }
            Err(why) => {
                let (at, number) = (syscall, body.number_by_copy(index));
                if wanted(number) {
                    found.missed.push(Missed { at, number, why });
                }
            }
        }
    }
}

/// clone(2) and clone3(2): their descriptions end where the child begins.
fn site_behind(
    object: &[u8],
    function: &Function,
    instructions: &[Instruction],
    body: &Body<'_>,
) -> Option<Site> {
    let syscall = function.range.end;
    let last = instructions.last().filter(|last| sets_eax(last))?;
    let is_there = ends_before_one(object, function) && body.decoded && !body.is_target(syscall);
    is_there.then(|| Site {
        syscall,
        window: last.ip()..last.next_ip(),
        number: Number::Known(last.immediate32()),
        // What is behind it is not known.
        needs_flags: true,
    })
}

/// The functions round these bytes, in order, and which bytes lie in none.
fn round(
    object: &[u8],
    bytes: &[u64],
    table: Option<&Table>,
) -> Result<(Vec<Function>, Vec<u64>), UnwindError> {
    let mut functions = Vec::new();
    let mut known = vec![false; bytes.len()];
    let all = table
        .map(|table| Functions::new(object, table))
        .transpose()?;
    for function in all.into_iter().flatten() {
        let function = function?;
        let Range { start, end } = function.range;
        // clone(2) again: the child's instruction is behind the end of its description.
        let inside =
            bytes.partition_point(|at| *at < start)..bytes.partition_point(|at| *at <= end);
        known
            .get_mut(inside)
            .into_iter()
            .for_each(|all| all.fill(true));
        let near = bytes.partition_point(|at| *at < start.saturating_sub(NEAR));
        let is_near = bytes
            .get(near)
            .is_some_and(|at| *at <= end.saturating_add(NEAR));
        if is_near && !function.is_signal_frame && end - start <= MOST_BYTES {
            functions.push(function);
        }
    }
    functions.sort_unstable_by_key(|one| one.range.start);
    let unknown = bytes.iter().zip(known).filter(|(_, known)| !known);
    let unknown = unknown.map(|(at, _)| *at).collect();
    Ok((functions, unknown))
}

/// Whether it makes calls.
fn calls(object: &[u8], function: &Function) -> bool {
    let pairs = || slice(object, &function.range).windows(2);
    let mut inside = decode(object, &function.range);
    ends_before_one(object, function)
        || pairs().any(|pair| pair == SYSCALL) && inside.any(|one| one.code() == Code::Syscall)
}

fn ends_before_one(object: &[u8], function: &Function) -> bool {
    let end = function.range.end;
    slice(object, &(end..end.saturating_add(2))) == SYSCALL
}

/// What direct jumps and calls lead to in the functions that make calls, in order.
fn targets(
    object: &[u8],
    code: &[Range<u64>],
    functions: &[Function],
    calling: &[Range<u64>],
) -> Vec<u64> {
    let mut targets = Vec::new();
    if calling.is_empty() {
        return targets;
    }
    for function in functions {
        let near = decode(object, &function.range).filter(has_near_target);
        let leads_to = near.map(|one| one.near_branch_target());
        targets.extend(leads_to.filter(|target| lies_in(calling, *target)));
    }
    add_far_targets(object, code, calling, &mut targets);
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Which call the bytes at an address would be, where nothing else is known: that of a `mov $number, %eax` before it that leads there.
fn number_before(object: &[u8], at: u64) -> Number {
    const LONGEST: u64 = 32;
    let starts = (at.saturating_sub(LONGEST)..at).rev();
    let leads = |start: &u64| {
        let mut code = decode(object, &(*start..at)).peekable();
        let number = code.peek().filter(|one| sets_eax(one)).and_then(constant)?;
        let mut end = *start;
        let straight = code.all(|one| {
            end = one.next_ip();
            !one.is_invalid() && one.flow_control() == FlowControl::Next
        });
        (straight && end == at).then_some(number)
    };
    let number = starts.filter_map(|start| leads(&start)).next();
    number.map_or(Number::Computed, Number::Known)
}

/// Makes the decoder allocate what it keeps.
pub fn make_tables() {
    let decoder = Decoder::with_ip(64, &SYSCALL, 0, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    for instruction in decoder {
        let _ = info.info(&instruction);
    }
}

fn decode<'a>(object: &'a [u8], range: &Range<u64>) -> impl Iterator<Item = Instruction> + 'a {
    let bytes = slice(object, range);
    Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE).into_iter()
}

fn sets_eax(instruction: &Instruction) -> bool {
    instruction.code() == Code::Mov_r32_imm32 && instruction.op0_register() == Register::EAX
}
