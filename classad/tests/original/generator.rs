//! Random expressions and ads, as text.

/// A generator of random numbers that is the same for the same seed (xorshift*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap_or(0)
    }

    pub(crate) fn of<'t>(&mut self, words: &[&'t str]) -> &'t str {
        words[self.below(words.len())]
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-7",
    "5",
    "10",
    "64",
    "65",
    "100",
    "3600",
    "90061",
    "1000000000",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967297",
    "0.0",
    "-0.0",
    "0.5",
    "1.0",
    "2.5",
    "-1.5",
    "3.7",
    "1e10",
    "1e300",
    "-1e300",
    "1e-5",
    "0.1",
    "123456789.123",
];

const STRINGS: &[&str] = &[
    "\"\"",
    "\"a\"",
    "\"A\"",
    "\"abc\"",
    "\"aBc\"",
    "\"a,b\"",
    "\"b, a,,c\"",
    "\"1,2\"",
    "\"3;1.5\"",
    "\"a@b@c\"",
    "\"it's\"",
    "\"say \\\"x\\\"\"",
    "\"back\\\\slash\"",
    "\"two\\nlines\\t\\001\"",
    "\"12\"",
    "\"12abc\"",
    "\" 1.5e2 \"",
    "\"true\"",
    "\"FALSE\"",
    "\"1.2.10\"",
    "\"1.2.9\"",
    "\"8.09\"",
    "\"x y\"",
    "\"x=1 y='a b'\"",
    "\"x=1;y=2\"",
    "\";\"",
    "\"<\"",
    "\"==\"",
    "\"is\"",
    "\"a.\"",
    "\"[ab]+\"",
    "\"(b)(c)?\"",
    "\"<\\\\1>\"",
    "\"i\"",
    "\"f\"",
    "\"x+1\"",
    "\"a + b\"",
    "\"%Y-%m-%d\"",
    "\"%j %U %a\"",
    "\"LINUX\"",
];

const OTHERS: &[&str] = &[
    "true",
    "false",
    "undefined",
    "error",
    "absTime(\"2003-01-25T09:00:00-06:00\")",
    "absTime(5,3600)",
    "relTime(5)",
    "relTime(93784.5)",
    "relTime(\"1+02:03:04\")",
    "{}",
    "{1,2,3}",
    "{\"a\",\"B\"}",
    "{1.5,undefined}",
    "{a,b}",
    "[]",
    "[a = 3; x = a + 1]",
    "{[a = 1],[a = 2; b = a]}",
];

const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "A",
    "l",
    "n",
    "n.a",
    "n.m",
    "n.zz",
    "my.a",
    "my.z",
    "target.a",
    "target.p",
    "p",
    "q",
    "z",
    "self.b",
    "parent.a",
    ".a",
    "root.b",
    "l[0]",
    "l[1]",
    "n[\"a\"]",
    "ads",
    "ads.a",
    "s",
    "target.q",
    "'x y'",
    "toplevel.a",
];

const BINARY: &[&str] = &[
    "+", "-", "*", "/", "%", "&&", "||", "==", "!=", "<", "<=", ">", ">=", "=?=", "=!=", "is",
    "isnt", "&", "|", "^", "<<", ">>", ">>>",
];

/// Functions, and how many arguments make sense at most.
const FUNCTIONS: &[(&str, usize)] = &[
    ("isUndefined", 1),
    ("isError", 1),
    ("isString", 1),
    ("isInteger", 1),
    ("isReal", 1),
    ("isList", 1),
    ("isClassAd", 1),
    ("isBoolean", 1),
    ("isAbsTime", 1),
    ("isRelTime", 1),
    ("member", 2),
    ("identicalMember", 2),
    ("size", 1),
    ("sum", 1),
    ("avg", 1),
    ("min", 1),
    ("max", 1),
    ("anyCompare", 3),
    ("allCompare", 3),
    ("getYear", 1),
    ("getMonth", 1),
    ("getDayOfYear", 1),
    ("getDayOfMonth", 1),
    ("getDayOfWeek", 1),
    ("getDays", 1),
    ("getHours", 1),
    ("getMinutes", 1),
    ("getSeconds", 1),
    ("splitTime", 1),
    ("formatTime", 2),
    ("strcat", 3),
    ("join", 3),
    ("toUpper", 1),
    ("toLower", 1),
    ("substr", 3),
    ("strcmp", 2),
    ("stricmp", 2),
    ("versioncmp", 2),
    ("versionLE", 2),
    ("versionLT", 2),
    ("versionGE", 2),
    ("versionGT", 2),
    ("versionEQ", 2),
    ("version_in_range", 3),
    ("regexp", 3),
    ("regexpMember", 3),
    ("regexps", 4),
    ("replace", 4),
    ("replaceAll", 4),
    ("int", 1),
    ("real", 1),
    ("string", 1),
    ("bool", 1),
    ("absTime", 2),
    ("relTime", 1),
    ("unparse", 1),
    ("unresolved", 1),
    ("floor", 1),
    ("ceil", 1),
    ("ceiling", 1),
    ("round", 1),
    ("pow", 2),
    ("quantize", 2),
    ("ifThenElse", 3),
    ("interval", 1),
    ("eval", 1),
    ("stringListsIntersect", 3),
    ("debug", 1),
    ("envV1ToV2", 1),
    ("mergeEnvironment", 2),
    ("listToArgs", 2),
    ("argsToList", 2),
    ("stringListSize", 2),
    ("stringListSum", 2),
    ("stringListAvg", 2),
    ("stringListMin", 2),
    ("stringListMax", 2),
    ("stringListMember", 3),
    ("stringListIMember", 3),
    ("stringListSubsetMatch", 3),
    ("stringListISubsetMatch", 3),
    ("stringList_regexpMember", 4),
    ("splitUserName", 1),
    ("splitSlotName", 1),
    ("split", 2),
    ("evalInEachContext", 2),
    ("countMatches", 2),
    ("userMap", 4),
    ("noSuchFunction", 1),
    ("slotEval", 2),
];

pub(crate) fn expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.one_in(5) {
        return match random.below(8) {
            0..=1 => random.of(NUMBERS),
            2..=3 => random.of(STRINGS),
            4 => random.of(OTHERS),
            _ => random.of(NAMES),
        }
        .to_owned();
    }
    let inner = |random: &mut Random| expression(random, depth - 1);
    match random.below(20) {
        0..=5 => {
            let (left, op) = (inner(random), random.of(BINARY));
            let blank = if random.one_in(3) && op != "is" && op != "isnt" {
                ""
            } else {
                " "
            };
            format!("{left}{blank}{op}{blank}{}", inner(random))
        }
        6 => {
            let op = random.of(&["-", "+", "!", "~"]);
            format!("{op}{}", inner(random))
        }
        7 => format!("({})", inner(random)),
        8 => format!("{} ? {} : {}", inner(random), inner(random), inner(random)),
        9 => format!("{} ?: {}", inner(random), inner(random)),
        10 => format!("({})[{}]", inner(random), inner(random)),
        11 => format!("({}).{}", inner(random), random.of(&["a", "b", "zz"])),
        12 => {
            let items: Vec<String> = (0..random.below(4)).map(|_| inner(random)).collect();
            format!("{{ {} }}", items.join(", "))
        }
        _ => {
            let (name, most) = FUNCTIONS[random.below(FUNCTIONS.len())];
            // Mostly as many as make sense, else one less or one more.
            let count = match random.below(6) {
                0 => most
                    .saturating_sub(1)
                    .max(usize::from(name == "formatTime" || name == "absTime")),
                1 => most + 1,
                _ => most,
            };
            let arguments: Vec<String> = (0..count).map(|_| inner(random)).collect();
            format!("{name}({})", arguments.join(","))
        }
    }
}

/// An ad with the attributes that expressions refer to.
pub(crate) fn ad(random: &mut Random, names: &[&str]) -> String {
    let mut attributes = vec![];
    for name in names {
        if random.one_in(6) {
            continue;
        }
        let expr = match *name {
            "l" => format!("{{ {}, {} }}", expression(random, 1), expression(random, 1)),
            "n" => format!(
                "[ a = {}; m = {} ]",
                expression(random, 1),
                expression(random, 2)
            ),
            "ads" => "{ [ a = 1; b = a ],[ a = 2 ] }".to_owned(),
            _ => {
                let depth = random.below(3);
                expression(random, depth)
            }
        };
        attributes.push(format!("{name} = {expr}"));
    }
    format!("[ {} ]", attributes.join("; "))
}

/// Words in a row: hardly ever an expression.
pub(crate) fn words(random: &mut Random) -> String {
    let count = 1 + random.below(7);
    let mut text = String::new();
    for _ in 0..count {
        text.push_str(random.of(WORDS));
        if random.one_in(2) {
            text.push(' ');
        }
    }
    text
}

/// Nothing that ends an attribute: the original reads an expression as one of an ad.
const WORDS: &[&str] = &[
    "1",
    "23",
    "-4",
    "5.5",
    ".5",
    "6.",
    "7e8",
    "1e",
    "-",
    "+",
    "!",
    "~",
    "*",
    "/",
    "%",
    "<",
    "<=",
    ">",
    ">>",
    ">>>",
    "==",
    "=?=",
    "=!=",
    "!=",
    "&",
    "&&",
    "|",
    "||",
    "^",
    "?",
    ":",
    "?:",
    "(",
    ")",
    "{",
    "}",
    "[",
    "[a=",
    ",",
    ".",
    "a",
    "b",
    "'q'",
    "'",
    "\"s\"",
    "\"",
    "is",
    "isnt",
    "true",
    "undefined",
    "error",
    "f(",
    "absTime(",
    "relTime(",
    "\\",
    "/*c*/",
    "\"\\x\\\"\"",
    "\t",
    "my",
    "parent",
    "x1_",
];
