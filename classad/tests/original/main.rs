//! Random expressions and ads, evaluated here and by the real library: both say the same, but for what
//! docs/CLASSADS.md enumerates.
//!
//! Always the same ones, so that nobody's change is refused for what it has not done; `WF_FULL=1` compares a hundred thousand that
//! nobody has seen, `WF_SEED=n` those of a seed.
#![allow(clippy::expect_used, reason = "a test")]

mod generator;
mod known;
mod oracle;
mod patterns;
mod real;
#[path = "../../../tests/support/skip.rs"]
mod skip;

use classad::{
    ClassAd, Context, Expr, Flat, Literal, Match, Value, parse_ad, parse_expression, parse_json_ad,
    parse_old_ads,
};
use generator::Random;
use known::{Difference, Watch};
use oracle::Oracle;
use real::Real;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const MY: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "l",
    "n",
    "ads",
    "s",
    "'x y'",
    "requirements",
    "rank",
];
const TARGET: &[&str] = &["a", "p", "q", "requirements", "rank"];

const SCRIPT: &str = include_str!("oracle.py");
const USUAL_SEED: u64 = 20_261_124;

/// A value as the oracle's script tells it.
fn tag(value: &Value) -> String {
    match value {
        Value::Undefined => "undefined".to_owned(),
        Value::Error => "error".to_owned(),
        Value::Boolean(truth) => format!("b:{truth}"),
        Value::Integer(number) => format!("i:{number}"),
        Value::Real(number) | Value::RelTime(number) if number.is_nan() => "r:nan".to_owned(),
        Value::Real(number) | Value::RelTime(number) => format!("r:{:016x}", number.to_bits()),
        Value::String(text) => format!("s:{text}"),
        Value::AbsTime(time) => format!("t:{}", time.seconds),
        Value::List(_) | Value::Ad(_) => tag_item(&value.to_expr()),
    }
}

fn tag_item(expr: &Expr) -> String {
    match expr {
        Expr::Literal(Literal::RelTime(seconds)) => tag(&Value::Real(*seconds)),
        Expr::Literal(literal) => tag(&Value::from(literal)),
        Expr::List(items) => {
            let items: Vec<String> = items.iter().map(|item| tag_item(item)).collect();
            format!("[{}]", items.join(","))
        }
        Expr::Ad(ad) => format!("a:{ad}"),
        other => format!("e:{other}"),
    }
}

struct Comparison {
    oracle: Oracle,
    /// Whether what is evaluated here passes through a circle.
    watch: Rc<Watch>,
    compared: usize,
    /// What kills the original.
    deadly: usize,
    /// Differences that are known, by name.
    known: BTreeMap<&'static str, usize>,
    differing: Vec<String>,
}

impl Comparison {
    fn ask(&mut self, request: &Json) -> Option<Json> {
        let answer = self.oracle.ask(request).expect("an answer");
        self.deadly += usize::from(answer.is_none());
        answer
    }

    fn check(&mut self, what: &str, subject: &str, original: &Json, ours: &str) {
        let passes_circle = self.watch.take();
        // What is no UTF-8 the script cannot tell.
        let Some(original) = original.as_str() else {
            return;
        };
        self.compared += 1;
        if original == ours {
            return;
        }
        let difference = Difference {
            what,
            subject,
            original,
            ours,
            passes_circle,
        };
        match difference.name() {
            Some(name) => *self.known.entry(name).or_default() += 1,
            None => self.differing.push(format!(
                "{what} of {subject}\n    original {original}\n    here     {ours}"
            )),
        }
    }

    fn expression(&mut self, text: &str, my: &str, target: Option<&str>) {
        // An ad that is written into an expression has nothing around it there, when the original is asked for more.
        let mut more = target.is_none() && !text.contains("[]") && !text.contains("[a =");
        let request = |more| json!({ "expr": text, "my": my, "target": target, "more": more });
        let mut answer = self.ask(&request(more));
        if answer.is_none() && more {
            more = false;
            answer = self.ask(&request(more));
        }
        let Some(answer) = answer else {
            return;
        };
        let subject = format!("{text}\n  in {my} with {target:?}");
        let expr = match parse_expression(text) {
            Ok(expr) => expr,
            Err(_) => return self.check("text", &subject, &answer["text"], "parse"),
        };
        self.check("text", &subject, &answer["text"], &expr.to_string());
        let watch = Rc::clone(&self.watch);
        let mut context = Context::new(&*watch).with_my(parse_ad(my).expect("an ad"));
        if let Some(target) = target {
            context = context.with_target(parse_ad(target).expect("an ad"));
        }
        let value = context
            .eval(&expr)
            .map_or("fail".to_owned(), |value| tag(&value));
        self.check("value", &subject, &answer["value"], &value);
        if more {
            let flat = context
                .flatten(&expr)
                .map_or("fail".to_owned(), |flat| match flat {
                    Flat::Value(value) => tag(&value),
                    Flat::Expr(expr) => format!("e:{expr}"),
                });
            self.check("flattening", &subject, &answer["flat"], &flat);
            let list = |names: Result<Vec<String>, _>| {
                names.map_or("fail".to_owned(), |names| names.join(","))
            };
            let external = list(context.external_references(&expr));
            self.check("external", &subject, &answer["external"], &external);
            let internal = list(context.internal_references(&expr));
            self.check("internal", &subject, &answer["internal"], &internal);
        }
    }

    /// A text that may be an expression or not.
    fn words(&mut self, text: &str) {
        // The original is asked for an attribute, whose end would be in the comment.
        // Two dots before digits are a number there.
        if text.contains("//") || text.contains("..") {
            return;
        }
        let Some(answer) = self.ask(&json!({ "expr": text })) else {
            return;
        };
        let ours = parse_expression(text).map_or("parse".to_owned(), |expr| expr.to_string());
        self.check("text", text, &answer["text"], &ours);
    }

    fn both(&mut self, left: &str, right: &str) {
        let Some(answer) = self.ask(&json!({ "left": left, "right": right })) else {
            return;
        };
        let subject = format!("{left} with {right}");
        let ad = |text| Arc::new(parse_ad(text).expect("an ad"));
        let (left, right) = (ad(left), ad(right));
        let watch = Rc::clone(&self.watch);
        let both = Match::of(Arc::clone(&left), Arc::clone(&right), &*watch);
        let passes_circle = watch.take();
        let Ok(both) = both else {
            return;
        };
        let truth = |truth| tag(&Value::Boolean(truth));
        for (name, accepts) in [
            ("left_accepts", both.left_accepts),
            ("right_accepts", both.right_accepts),
        ] {
            watch.set(passes_circle);
            self.check("acceptance", &subject, &answer[name], &truth(accepts));
        }
        for (my, target, rank, name) in [
            (&left, &right, both.left_rank, "left_rank"),
            (&right, &left, both.right_rank, "right_rank"),
        ] {
            let context = Context::new(&*watch)
                .with_my(Arc::clone(my))
                .with_target(Arc::clone(target));
            let value = context.eval_attribute("rank").expect("a value");
            self.check("rank", &subject, &answer[name], &tag(&value));
            if let Value::Real(number) = value
                && number.is_finite()
            {
                assert_eq!(number, rank);
            }
        }
    }

    fn ad(&mut self, text: &str) {
        let Some(answer) = self.ask(&json!({ "ad": text })) else {
            return;
        };
        let Ok(ad) = parse_ad(text) else {
            return self.check("text", text, &answer["text"], "parse");
        };
        self.check("text", text, &answer["text"], &ad.to_string());
        self.check("old syntax", text, &answer["old"], &ad.to_old().to_string());
        self.check("JSON", text, &answer["json"], &ad.to_json().to_string());
        let again = parse_json_ad(ad.to_json().as_bytes()).map(|ad| ad.to_json());
        // Years that are shorter than four digits do not read back: the original prints them so.
        let text_of_ad = ad.to_string();
        let mut times = text_of_ad.split("absTime(\"").skip(1);
        let short_year = times.any(|time| !time.starts_with("2003"));
        // What was `- 1` is `-1` in both texts.
        let expected = parse_ad(&text_of_ad).map(|ad| ad.to_json());
        assert!(
            short_year || again == expected,
            "read back from JSON: {text}"
        );
        let Some(answer) = self.ask(&json!({ "old": ad.to_old().to_string() })) else {
            return;
        };
        let original = answer["ads"]
            .as_array()
            .and_then(|ads| ads.first())
            .cloned()
            .unwrap_or_default();
        let ours = parse_old_ads(ad.to_old().as_bytes())
            .ok()
            .and_then(|ads| ads.into_iter().next());
        if let Some(ours) = ours {
            self.check(
                "reading of the old syntax",
                text,
                &original,
                &ClassAd::to_string(&ours),
            );
        }
    }
}

/// Compares so many rounds, or `WF_ROUNDS`, of a seed: the usual one, that of `WF_SEED`, or with `WF_FULL=1` a new one.
fn compare(
    test: &str,
    (usual, full): (u64, u64),
    mut each: impl FnMut(&mut Comparison, &mut Random, u64),
) {
    let oracle = match Oracle::start(SCRIPT) {
        Ok(oracle) => oracle,
        Err(reason) => return skip::note(test, &reason),
    };
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let is_full = variable("WF_FULL") == Some(1);
    let seed = variable("WF_SEED").unwrap_or_else(|| match is_full {
        true => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        false => USUAL_SEED,
    });
    let rounds = variable("WF_ROUNDS").unwrap_or(if is_full { full } else { usual });
    println!("seed {seed}, {rounds} expressions");
    let mut comparison = Comparison {
        oracle,
        watch: Rc::default(),
        compared: 0,
        deadly: 0,
        known: BTreeMap::new(),
        differing: vec![],
    };
    let mut random = Random::new(seed);
    for round in 0..rounds {
        each(&mut comparison, &mut random, round);
    }
    let Comparison {
        compared,
        deadly,
        known,
        differing,
        ..
    } = comparison;
    println!(
        "{compared} answers compared, {} differ, {deadly} questions killed the original",
        differing.len()
    );
    for (name, count) in known {
        println!("known: {count} {name}");
    }
    for difference in differing.iter().take(40) {
        println!("{difference}");
    }
    assert!(
        differing.is_empty(),
        "seed {seed}: {} of {compared} answers differ",
        differing.len()
    );
}

#[test]
fn random_expressions_are_evaluated_as_by_the_original() {
    let (mut my, mut target) = (String::new(), String::new());
    let test = "random_expressions_are_evaluated_as_by_the_original";
    compare(test, (2_500, 100_000), |comparison, random, round| {
        if round % 10 == 0 {
            my = generator::ad(random, MY);
            target = generator::ad(random, TARGET);
            comparison.ad(&my);
            comparison.both(&my, &target);
        }
        comparison.words(&generator::words(random));
        let depth = 1 + random.below(4);
        let text = generator::expression(random, depth);
        let target = (round % 2 == 1).then_some(target.as_str());
        comparison.expression(&text, &my, target);
    });
}

#[test]
fn real_expressions_that_were_changed_are_evaluated_as_by_the_original() {
    let real = Real::new();
    let [mut my, mut target] = ["[]", "[]"].map(str::to_owned);
    let test = "real_expressions_that_were_changed_are_evaluated_as_by_the_original";
    compare(test, (1_500, 30_000), |comparison, random, round| {
        if round % 20 == 0 {
            [my, target] = real.ads(random);
            comparison.ad(&my);
            comparison.both(&my, &target);
        }
        let both = (round % 2 == 1).then_some(target.as_str());
        // As they are, first.
        let as_it_is = usize::try_from(round)
            .ok()
            .and_then(|at| real.expressions().get(at));
        let text = as_it_is.cloned().unwrap_or_else(|| real.changed(random));
        if !real::can_be_compared(&text) {
            return;
        }
        match parse_expression(&text) {
            Ok(_) => comparison.expression(&text, &my, both),
            Err(_) => comparison.words(&text),
        }
    });
}

/// Pairs that were measured; the comparison of random ones hardly meets them.
#[test]
fn semicolons_comments_and_old_environments_are_read_as_by_the_original() {
    for text in ["[;]", "[ ; ; ]", "1 // c", "[ a = 1 ] + 1 //"] {
        assert!(parse_expression(text).is_err(), "{text}");
    }
    for text in ["[]", "[;a=1;;b=2;]", "1 // c\n", "// c\n1", "1 /* c */"] {
        assert!(parse_expression(text).is_ok(), "{text}");
    }
    assert!(parse_ad("[ a = 1 ] // c").is_ok());
    let environments = [
        (" A = 1 ; B=2 ", Some("A' '=' '1' ' B=2' '")),
        ("A=1\nB=2", Some("A=1 B=2")),
        ("|A=1|B=2\nC=3", Some("A=1 B=2 C=3")),
        (" |A=1|B=2", Some("|A=1|B=2")),
        ("A=\n1", None),
    ];
    for (text, expected) in environments {
        let call = format!("envV1ToV2({})", Expr::from(text));
        let expr = parse_expression(&call).expect("an expression");
        let value = Context::new(&classad::Nowhere)
            .eval(&expr)
            .expect("a value");
        let expected = expected.map_or(Value::Error, Value::from);
        assert_eq!(value.to_string(), expected.to_string(), "{text:?}");
    }
}

#[test]
fn a_list_of_ads_is_read_as_json() {
    let ads = classad::parse_any_ads("[ { \"a\": 1 }, { \"a\": 2 } ]\n{ \"a\": 3 }");
    let texts: Vec<String> = ads.expect("ads").iter().map(ClassAd::to_string).collect();
    assert_eq!(texts, ["[ a = 1 ]", "[ a = 2 ]", "[ a = 3 ]"]);
    assert!(classad::parse_any_ads("[]").expect("no attribute").len() == 1);
    for text in ["[{},]", "[{} {}]", "[{}", "[1]"] {
        assert!(classad::parse_any_ads(text).is_err(), "{text}");
    }
}
