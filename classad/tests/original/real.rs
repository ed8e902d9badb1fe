//! Real expressions and ads, and what becomes of them when words of them are changed: the policies that come along and the
//! built-in ones, and the ads of a machine and of a job.

use super::generator::{self, Random};
use classad::config::{Config, ConfigOptions};
use classad::{ClassAd, Nowhere, parse_expression, parse_old_ad};
use std::collections::BTreeSet;

const POLICIES: [&str; 6] = [
    include_str!("../../policies/dedicated.conf"),
    include_str!("../../policies/desktop.conf"),
    include_str!("../../policies/image_size.conf"),
    include_str!("../../policies/office_hours.conf"),
    include_str!("../../policies/own_first.conf"),
    include_str!("../../policies/suspend.conf"),
];
const MACHINE: &str = include_str!("real/machine.ad");
const JOB: &str = include_str!("real/job.ad");

/// What depends on more than an expression and its ads: nobody can compare it.
const LEFT_OUT: &[&str] = &["time", "currenttime", "random", "userhome", "usermap"];

/// What an expression consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Text,
    Sign,
}

/// Real expressions, their words, and two ads.
pub(crate) struct Real {
    expressions: Vec<String>,
    words: Vec<(Kind, String)>,
    machine: ClassAd,
    job: ClassAd,
}

impl Real {
    pub(crate) fn new() -> Self {
        let mut expressions = BTreeSet::new();
        for policy in POLICIES {
            let config = Config::parse(policy, &Nowhere, &ConfigOptions::default());
            let config = config.expect("no fault");
            let values = config
                .settings()
                .into_iter()
                .filter_map(|setting| setting.value);
            expressions.extend(values.map(str::to_owned));
        }
        let machine = parse_old_ad(MACHINE).expect("an ad");
        let job = parse_old_ad(JOB).expect("an ad");
        for ad in [&machine, &job] {
            expressions.extend(ad.iter().map(|(_, expr)| expr.to_string()));
        }
        let expressions: Vec<String> = expressions
            .into_iter()
            .filter(|text| is_one(text))
            .collect();
        let all = expressions.iter().flat_map(|text| split(text));
        let words = all.map(|(kind, word)| (kind, word.to_owned())).collect();
        Self {
            expressions,
            words,
            machine,
            job,
        }
    }

    pub(crate) fn expressions(&self) -> &[String] {
        &self.expressions
    }

    /// One of them, with up to three changes. It may be no expression any more.
    pub(crate) fn changed(&self, random: &mut Random) -> String {
        let text = &self.expressions[random.below(self.expressions.len())];
        self.change(random, text)
    }

    fn change(&self, random: &mut Random, text: &str) -> String {
        let mut words: Vec<(Kind, String)> = split(text)
            .into_iter()
            .map(|(kind, word)| (kind, word.to_owned()))
            .collect();
        for _ in 0..=random.below(3) {
            let at = random.below(words.len());
            match random.below(8) {
                0 if words.len() > 1 => drop(words.remove(at)),
                1 => words.insert(at, self.words[random.below(self.words.len())].clone()),
                2 => {
                    let other = random.below(words.len());
                    words.swap(at, other);
                }
                // A whole expression in the place of a word.
                3 => words[at].1 = format!("({})", generator::expression(random, 2)),
                _ => words[at] = self.like(random, words[at].0),
            }
        }
        let words: Vec<String> = words.into_iter().map(|(_, word)| word).collect();
        words.join(" ")
    }

    fn like(&self, random: &mut Random, kind: Kind) -> (Kind, String) {
        loop {
            let word = &self.words[random.below(self.words.len())];
            if word.0 == kind {
                return word.clone();
            }
        }
    }

    /// The ads of the machine and of the job, in the new syntax, with some attributes left out and some changed.
    pub(crate) fn ads(&self, random: &mut Random) -> [String; 2] {
        [&self.machine, &self.job].map(|ad| {
            let mut changed = vec![];
            for (name, expr) in ad.iter() {
                let text = match random.below(8) {
                    0 => continue,
                    1 => self.change(random, &expr.to_string()),
                    _ => expr.to_string(),
                };
                // The original does not read an ad with an attribute that is none.
                let text = if is_one(&text) {
                    text
                } else {
                    expr.to_string()
                };
                changed.push(format!("{name} = {text}"));
            }
            format!("[ {} ]", changed.join("; "))
        })
    }
}

/// Whether it is an expression that can be compared.
fn is_one(text: &str) -> bool {
    parse_expression(text).is_ok() && can_be_compared(text)
}

/// Whether it says nothing of what both cannot be told alike, and has no comment.
pub(crate) fn can_be_compared(text: &str) -> bool {
    let is_left_out = |word: &str| LEFT_OUT.contains(&word.to_ascii_lowercase().as_str());
    !text.contains("//") && !split(text).iter().any(|(_, word)| is_left_out(word))
}

/// The words of an expression.
fn split(text: &str) -> Vec<(Kind, &str)> {
    const SIGNS: [&str; 12] = [
        "=?=", "=!=", ">>>", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "?:",
    ];
    let mut words = vec![];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (kind, len) = if first == '"' || first == '\'' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, one)| {
                let is_end = *one == first && !escaped;
                escaped = *one == '\\' && !escaped;
                is_end
            });
            let kind = if first == '"' { Kind::Text } else { Kind::Word };
            (kind, end.map_or(rest.len(), |(at, _)| at + 1))
        } else if first.is_ascii_alphabetic() || first == '_' {
            let is_part = |one: char| one.is_ascii_alphanumeric() || one == '_';
            (
                Kind::Word,
                rest.find(|one| !is_part(one)).unwrap_or(rest.len()),
            )
        } else if first.is_ascii_digit() {
            let is_part = |one: char| one.is_ascii_alphanumeric() || one == '.';
            let len = rest.find(|one| !is_part(one)).unwrap_or(rest.len());
            // 3.0E-01
            let exponent = rest[len..]
                .strip_prefix(['-', '+'])
                .filter(|_| rest[..len].ends_with(['E', 'e']));
            let more = exponent.map_or(0, |rest| {
                1 + rest
                    .find(|one: char| !one.is_ascii_digit())
                    .unwrap_or(rest.len())
            });
            (Kind::Number, len + more)
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            (Kind::Sign, sign.map_or(first.len_utf8(), |sign| sign.len()))
        };
        let (word, behind) = rest.split_at(len);
        words.push((kind, word));
        rest = behind.trim_start();
    }
    words
}

#[test]
fn real_expressions_are_split_into_their_words() {
    let words: Vec<&str> = split("MY.Load<=3.0E-01&&x =?= \"a \\\" b\"")
        .into_iter()
        .map(|(_, word)| word)
        .collect();
    assert_eq!(
        words,
        [
            "MY",
            ".",
            "Load",
            "<=",
            "3.0E-01",
            "&&",
            "x",
            "=?=",
            "\"a \\\" b\""
        ]
    );
    let real = Real::new();
    assert!(real.expressions.len() > 100, "{}", real.expressions.len());
    for text in &real.expressions {
        let again: Vec<&str> = split(text).into_iter().map(|(_, word)| word).collect();
        let (again, text) = (parse_expression(again.join(" ")), parse_expression(text));
        assert_eq!(
            again.map(|expr| expr.to_string()),
            text.map(|expr| expr.to_string())
        );
    }
}
