//! What programs that do not count with reals do, in the shares that Weicker's Dhrystone found: assignments, comparisons, calls, records that
//! refer to records, strings of 30 letters, arrays: `Mips`.
//!
//! A VAX 11/780, the machine of one MIPS, does 1757 of its rounds a second.

use super::repeat;
use std::hint::black_box;
use std::time::Duration;

const ROUNDS_OF_A_VAX: f64 = 1757.0;
/// Rounds between looks at the clock.
const AT_ONCE: u32 = 1000;

/// Rounds a second in units of a VAX, rounded, at least 1.
#[must_use]
pub fn dhrystone_mips(at_least: Duration) -> i64 {
    let mut world = World::new();
    let (times, seconds) = repeat(at_least, || {
        for number in 0..AT_ONCE {
            black_box(&mut world).round(number as i32);
        }
    });
    let rounds = times as f64 * f64::from(AT_ONCE);
    ((rounds / seconds / ROUNDS_OF_A_VAX).round() as i64).max(1)
}

type Letters = [u8; 30];
const FIRST: &Letters = b"DHRYSTONE PROGRAM, 1'ST STRING";
const SECOND: &Letters = b"DHRYSTONE PROGRAM, 2'ND STRING";
const SOME: &Letters = b"DHRYSTONE PROGRAM, SOME STRING";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ident {
    One,
    Two,
    Three,
    Four,
    Five,
}

#[derive(Clone, Copy)]
struct Record {
    /// Which record it refers to.
    next: usize,
    kind: Ident,
    number: i32,
    text: Letters,
}

/// What the rounds work on.
struct World {
    records: [Record; 2],
    number: i32,
    truth: bool,
    letters: (u8, u8),
    row: [i32; 50],
    table: Box<[[i32; 50]; 50]>,
    text: Letters,
}

impl World {
    fn new() -> Self {
        let record = Record {
            next: 1,
            kind: Ident::Three,
            number: 40,
            text: *SOME,
        };
        World {
            records: [record; 2],
            number: 0,
            truth: false,
            letters: (0, 0),
            row: [0; 50],
            table: Box::new([[0; 50]; 50]),
            text: *FIRST,
        }
    }

    fn round(&mut self, number: i32) {
        self.set_letters();
        let (mut one, two) = (2, 3);
        let text = *black_box(SECOND);
        let mut kind = Ident::Two;
        self.truth = !before(&self.text, &text);
        let mut three = 0;
        while one < two {
            three = 5 * one - two;
            three = sum_and_two(one, three);
            one += 1;
        }
        self.fill(one, three);
        self.follow();
        let mut letter = b'A';
        while letter <= self.letters.1 {
            if kind == same(letter, b'C') {
                kind = self.other(Ident::One);
                self.text = *SECOND;
                self.number = number;
            }
            letter += 1;
        }
        let two = two * one;
        one = two / three.max(1);
        let two = 7 * (two - three) - one;
        self.number = self
            .number
            .wrapping_add(black_box(self.last(one).wrapping_add(two)));
        self.text = *FIRST;
    }

    fn set_letters(&mut self) {
        self.letters.0 = b'A';
        self.truth |= self.letters.0 == b'A';
        self.letters.1 = b'B';
    }

    /// From one record to the one it refers to, and back.
    fn follow(&mut self) {
        let next = self.records[0].next;
        self.records[next] = self.records[0];
        black_box(&self.records[next].text);
        self.records[0].number = 5;
        self.records[next].number = self.records[0].number;
        self.records[next].next = self.records[0].next;
        self.number = sum_and_two(10, self.number & 0xff);
        if self.records[next].kind == Ident::One {
            self.records[0] = self.records[next];
        } else {
            self.records[next].number = 6;
            self.records[next].kind = self.other(self.records[0].kind);
            let sum = sum_and_two(self.records[next].number, 10);
            self.records[next].number = sum;
        }
    }

    fn other(&self, kind: Ident) -> Ident {
        match kind {
            Ident::One => Ident::One,
            Ident::Two if self.number > 100 => Ident::One,
            Ident::Two => Ident::Four,
            Ident::Three => Ident::Two,
            Ident::Four => Ident::Five,
            Ident::Five => Ident::Three,
        }
    }

    fn fill(&mut self, one: i32, two: i32) {
        let at = (one + 5) as usize % 40;
        self.row[at] = two;
        self.row[at + 1] = self.row[at];
        self.row[at + 9] = at as i32;
        for place in at..=at + 1 {
            self.table[at][place] = at as i32;
        }
        self.table[at][at - at.min(1)] += 1;
        self.table[at + 9][at] = self.row[at];
        self.number = 5;
    }

    fn last(&self, one: i32) -> i32 {
        match self.letters.0 {
            b'A' => one + 9 - self.number,
            _ => one,
        }
    }
}

#[inline(never)]
fn sum_and_two(left: i32, right: i32) -> i32 {
    black_box(left) + 2 + right
}

#[inline(never)]
fn same(left: u8, right: u8) -> Ident {
    match black_box(left) == right {
        true => Ident::Two,
        false => Ident::One,
    }
}

/// Whether the second text is behind the first, once two letters of them were found to be alike.
#[inline(never)]
fn before(first: &Letters, second: &Letters) -> bool {
    let mut at = 2;
    while at <= 2 {
        if same(first[at], second[at + 1]) == Ident::One {
            at += 1;
        }
    }
    black_box(first) > second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_leaves_what_it_must() {
        let mut world = World::new();
        for number in 0..1000 {
            world.round(number);
        }
        let at = (3 + 5) as usize;
        assert_eq!((world.letters, world.truth), ((b'A', b'B'), true));
        assert_eq!(
            (world.row[at], world.row[at + 1], world.row[at + 9]),
            (11, 11, 8)
        );
        assert_eq!(world.table[at][at - 1], 1000);
        assert_eq!(world.records[1].number, 18);
        assert_eq!(world.records[1].kind, Ident::Two);
        assert_eq!(&world.text, FIRST);
    }
}
