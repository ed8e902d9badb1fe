//! Where both differ, and why: docs/CLASSADS.md has each of them.

use classad::{Context, Surroundings, parse_ad, parse_expression};
use std::cell::Cell;

/// Sees whether an evaluation passes through a circle.
#[derive(Default)]
pub(crate) struct Watch(Cell<bool>);

impl Watch {
    /// Whether it did since it was asked last.
    pub(crate) fn take(&self) -> bool {
        self.0.take()
    }

    pub(crate) fn set(&self, passes_circle: bool) {
        self.0.set(passes_circle);
    }
}

impl Surroundings for Watch {
    fn now(&self) -> i64 {
        0
    }

    fn circle(&self) {
        self.0.set(true);
    }
}

/// What was asked, and what both answered.
pub(crate) struct Difference<'t> {
    /// Of what: `value`, `flattening` …
    pub(crate) what: &'t str,
    /// The expression, with the ads that it was evaluated in.
    pub(crate) subject: &'t str,
    pub(crate) original: &'t str,
    pub(crate) ours: &'t str,
    /// Whether the answer here came by way of a circle: an attribute that refers to itself.
    pub(crate) passes_circle: bool,
}

impl Difference<'_> {
    fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.subject.contains(word))
    }

    /// The difference's name in docs/CLASSADS.md; none if it is not known.
    pub(crate) fn name(&self) -> Option<&'static str> {
        let flattening = self.what == "flattening";
        let references = matches!(self.what, "external" | "internal");
        let matched = matches!(self.what, "acceptance" | "rank");
        if self.what == "acceptance" && self.has(&["relTime("]) {
            return Some("spans are true in Python");
        }
        if self.has(&["Time("]) && self.has(&["92233720368547758"]) {
            // Years that C's calendar does not have.
            return Some("years");
        }
        if flattening && self.original == "fail" {
            return Some("flattening gives up");
        }
        if flattening && self.has(&["split", "argsToList", "evalInEachContext"]) {
            return Some("flattening loses lists");
        }
        if flattening && self.has(&["&&"]) && is_left_of(self.original, self.ours) {
            return Some("flattening loses constants");
        }
        // The original keeps what is selected from an item of a list that has names in it, also where its value is ERROR.
        if flattening && self.original.contains("})[") && self.ours == "error" {
            return Some("flattening keeps selections from items");
        }
        if references && self.has(&["splitTime("]) {
            return Some("references into an ad that a function makes");
        }
        if references && self.has(&["n.", "n[", "parent", "unresolved"]) {
            return Some("references after a name that is not found");
        }
        let outermost = ["unresolved(toplevel.", "unresolved(root.", "unresolved(."];
        if (self.has(&["evalInEachContext(", "countMatches("]) || self.has(&outermost))
            && (matched || self.has(&["with Some"]))
        {
            return Some("contexts after a name that is not found");
        }
        if self.original == "undefined" && self.has(&["unresolved("]) && self.has(&["with Some"]) {
            return Some("contexts after a name that is not found");
        }
        if self.original == "undefined" && self.has(&["\"].", "\"])."]) {
            return Some("selections from items that lead elsewhere");
        }
        if self.passes_circle {
            return Some("circles");
        }
        if self.has(&["eval("]) && self.has(&["relTime("]) {
            return Some("numbers that begin with 0");
        }
        if self.original == "fail" && self.has(&["unresolved("]) {
            return Some("unresolved without a pattern");
        }
        None
    }
}

/// Whether a text is left of another when something of that is taken away.
fn is_left_of(text: &str, whole: &str) -> bool {
    let mut rest = whole.bytes();
    text.bytes().all(|byte| rest.any(|other| other == byte))
}

/// The name of a difference of these values of an expression, which is evaluated here.
fn name_of(text: &str, my: &str, original: &str, ours: &str) -> Option<&'static str> {
    let watch = Watch::default();
    let context = Context::new(&watch).with_my(parse_ad(my).expect("an ad"));
    let expr = parse_expression(text).expect("an expression");
    // What it passes through counts, not its value.
    let _ = context.eval(&expr);
    let difference = Difference {
        what: "value",
        subject: &format!("{text}\n  in {my} with None"),
        original,
        ours,
        passes_circle: watch.take(),
    };
    difference.name()
}

#[test]
fn a_difference_is_excused_by_a_circle_only_where_evaluation_passes_through_one() {
    for (text, my) in [
        ("n.a", r#"[ n = [ a = n["a"] ] ]"#),
        ("l[0] is 1", "[ l = { l[0], 1 } ]"),
        ("(a + 1) is {}", "[ a = b; b = a ]"),
        (r#"n["a"] is 1"#, "[ b = n.a; n = [ a = parent.b ] ]"),
    ] {
        assert_eq!(
            name_of(text, my, "error", "undefined"),
            Some("circles"),
            "{text} in {my}"
        );
    }
    for (text, my) in [
        ("n.a", r#"[ n = [ a = n["b"]; b = 1 ] ]"#),
        ("l[1] is 1", "[ l = { l[0], 1 } ]"),
        ("c", "[ a = b; b = a; c = 1 ]"),
        ("true || a", "[ a = b; b = a ]"),
        ("l is n.zz", "[ l = { (l) }; n = [ a = n.a ] ]"),
    ] {
        assert_eq!(
            name_of(text, my, "error", "undefined"),
            None,
            "{text} in {my}"
        );
    }
}
