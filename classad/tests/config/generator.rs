//! Random configurations, as text.

use std::fmt::Write;

/// Names that refer only to those behind them, or to themselves: the original expands circles for ever.
const NAMES: &[&str] = &[
    "A", "Bb", "C_1", "D.e", "F", "G", "H2", "Ii", "J", "K_K", "L", "M",
];

const WORDS: &[&str] = &[
    "x",
    "foo",
    "1",
    "7",
    "2.5",
    "a b",
    "\"q r\"",
    "/p/q.r",
    "&&",
    "|| z",
    "a,b,c",
    "(x)",
    "# y",
    "$",
    "$$(Z)",
    "\\ n",
    "True",
    "-3",
    "%",
    "'s'",
    "a = b",
    "c : d",
    "$(NOPE)",
    "$(DOLLAR)",
    "  ",
    "@t",
    "x\ty",
    "$(",
    ")",
    "$()",
];

const CONDITIONS: &[&str] = &[
    "true",
    "false",
    "yes",
    "0",
    "1.5",
    "!true",
    "! false",
    "version >= 8.1.2",
    "version < 8.0",
    "defined A",
    "defined Bb",
    "! defined F",
    "defined Nope",
    "$(NOPE)",
    "! $(NOPE)",
    "$(NOPE:true)",
    "defined use POLICY:DESKTOP",
    "defined D.e",
];

const APPENDS: &[&str] = &[
    "+=", "+,=", "+;=", "+|=", "+&=", "+*=", "+||=", "+&&=", "+,,=", "+;;=", "+**=",
];

/// Statements that are mostly wrong, one for some configurations.
const ODD: &[&str] = &[
    "bogus",
    "A B",
    "A-B = 1",
    "use POLICY : NOPE",
    "else",
    "endif",
    "if A == 1",
    "A +? = 1",
    "A @ 1",
    "error : no",
    "include : /nope",
    "$(A B) = 1",
    "A +-= 2",
    "use NOPE : X",
    "include x : /nope",
    "if version",
    "[sec",
    "[sec]",
    "warning : $(A)",
    "A : old",
    "A foo = stray",
    "@use POLICY : ALWAYS_RUN_JOBS",
    "use POLICY : LIMIT_JOB_RUNTIMES(5)",
];

/// Makes configurations from a seed (xorshift*).
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8;
        usize::try_from(number % count as u64).unwrap_or(0)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'t>(&mut self, words: &[&'t str]) -> &'t str {
        words[self.below(words.len())]
    }

    /// In another case now and then.
    fn cased(&mut self, name: &str) -> String {
        match self.below(4) {
            0 => name.to_lowercase(),
            1 => name.to_uppercase(),
            _ => name.to_owned(),
        }
    }

    /// A name behind `at`.
    fn later(&mut self, at: usize) -> Option<String> {
        let rest = &NAMES[at + 1..];
        if rest.is_empty() {
            return None;
        }
        let name = self.of(rest);
        Some(self.cased(name))
    }

    /// A macro in the value of the name at `at`; the name itself is a reference, too.
    fn reference(&mut self, at: usize) -> String {
        let name = match self.one_in(4) {
            true => Some(self.cased(NAMES[at])),
            false => self.later(at),
        };
        let Some(name) = name else {
            return "$(NOPE:none)".to_owned();
        };
        match self.below(9) {
            0 => format!(
                "$({name}:{})",
                self.of(&["def", "a b", "x,y", "$(NOPE)", "c:d", "(e)", "", "f-g"])
            ),
            1 => format!("$$({name})"),
            2 => format!("$({name}"),
            3 => format!(
                "$ENV({})",
                self.of(&["WF_SET", "WF_UNSET", "WF_UNSET:d", "WF_SET:d"])
            ),
            _ => format!("$({name})"),
        }
    }

    /// A function, of a name behind `at` or of a text.
    fn function(&mut self, at: usize) -> String {
        // Functions that refer to their own name end the original where it is not defined.
        let later = self.later(at).unwrap_or_else(|| "NOPE".to_owned());
        let letters = [
            "", "p", "n", "x", "d", "pn", "nx", "px", "q", "nq", "xq", "pb", "db", "xb", "u", "w",
            "a",
        ];
        match self.below(8) {
            0 => format!("$F{}({later})", self.of(&letters)),
            1 => format!("$BASENAME({later})"),
            2 => format!("$DIRNAME({later})"),
            3 => format!(
                "$INT({})",
                self.of(&["1+2", "7/2", "2.5", "3 > 2", "10,%04d", "255,%x"])
            ),
            4 => format!(
                "$REAL({})",
                self.of(&["1.5", "1/3.0", "2,%.3f", "1e20", "3,%g"])
            ),
            5 => format!(
                "$SUBSTR({later},{})",
                self.of(&["0", "1", "-2", "1,2", "0,-1", "-3,2", "5"])
            ),
            6 => format!(
                "$CHOICE({})",
                self.of(&["0,a,b", "1,a,b", "2,x,,z", "1+1,a,b,c"])
            ),
            _ => format!(
                "$STRING({})",
                self.of(&["\"s t\"", "plain", "\"a\",%3s", "7"])
            ),
        }
    }

    fn value(&mut self, at: usize) -> String {
        let mut value = String::new();
        for _ in 0..self.below(5) {
            let piece = match self.below(6) {
                0..=2 => self.of(WORDS).to_owned(),
                3 | 4 => self.reference(at),
                _ => self.function(at),
            };
            value.push_str(&piece);
            if self.one_in(2) {
                value.push(' ');
            }
            if self.one_in(8) {
                value.push_str(self.of(&["\\\n", " \\  \n   ", "\\\n# c \\\n"]));
                // What continues is no comment.
                value.push('k');
            }
        }
        // A name, as macros are looked at in it, too, may not be the beginning of a continuation that has no end.
        while value.ends_with(['\\', ' ', '\t']) {
            value.pop();
        }
        value
    }

    fn assignment(&mut self, text: &mut String) {
        let at = self.below(NAMES.len());
        let name = self.cased(NAMES[at]);
        let value = self.value(at);
        let prefix = if self.one_in(12) { "TOOL." } else { "" };
        let _ = match self.below(8) {
            0 => writeln!(text, "{prefix}{name} {} {value}", self.of(APPENDS)),
            1 if !value.contains('\n') => {
                writeln!(text, "{name} @=end\n{value}\n  second $(NOPE)line\n@end")
            }
            2 => writeln!(text, "  {prefix}{name}={value}"),
            _ => writeln!(text, "{prefix}{name} = {value}"),
        };
    }

    fn statements(&mut self, text: &mut String, depth: usize) {
        for _ in 0..1 + self.below(6) {
            match self.below(14) {
                0 if depth > 0 => {
                    let _ = writeln!(text, "if {}", self.of(CONDITIONS));
                    self.statements(text, depth - 1);
                    if self.one_in(3) {
                        let _ = writeln!(text, "elif {}", self.of(CONDITIONS));
                        self.statements(text, depth - 1);
                    }
                    if self.one_in(2) {
                        text.push_str("else\n");
                        self.statements(text, depth - 1);
                    }
                    text.push_str("endif\n");
                }
                1 => text.push_str(self.of(&[
                    "# comment\n",
                    "\n",
                    "   # comment \\\n",
                    "[section]\n",
                ])),
                _ => self.assignment(text),
            }
        }
    }

    /// A configuration; one in eight has a statement that is probably wrong.
    pub(crate) fn configuration(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.below(6) {
            self.statements(&mut text, 3);
        }
        if self.one_in(8) {
            let odd = self.of(ODD);
            let _ = writeln!(text, "{odd}");
        }
        text
    }
}
