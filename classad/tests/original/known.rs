//! Where both differ, and why: docs/CLASSADS.md has each of them.

/// What was asked, and what both answered.
pub(crate) struct Difference<'t> {
    /// Of what: `value`, `flattening` …
    pub(crate) what: &'t str,
    /// The expression, with the ads that it was evaluated in.
    pub(crate) subject: &'t str,
    pub(crate) original: &'t str,
    pub(crate) ours: &'t str,
}

impl Difference<'_> {
    fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.subject.contains(word))
    }

    /// Whether an attribute refers to itself by one of these words.
    fn is_circle(&self, name: &str, words: &[&str]) -> bool {
        let begin = format!("; {name} = ");
        let mut bindings = self.subject.split(begin.as_str()).skip(1);
        bindings.any(|rest| {
            let end = rest.find("; s = ").unwrap_or(rest.len());
            words.iter().any(|word| rest[..end].contains(word))
        })
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
        if references && self.has(&["n.", "n[", "parent", "unresolved"]) {
            return Some("references after a name that is not found");
        }
        if self.has(&["evalInEachContext(", "countMatches("])
            && (matched || self.has(&["with Some"]))
        {
            return Some("contexts after a name that is not found");
        }
        if self.is_circle("l", &["(l", "l["]) || self.is_circle("n", &["n.", "n["]) {
            return Some("circles in lists and subscripts");
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
