//! Where both differ, and why: docs/CONFIG.md has each of them.

/// What decides about a difference.
pub(crate) struct Difference<'d> {
    /// The configuration.
    pub(crate) case: &'d str,
    /// The name whose value differs; none: one of both refuses the configuration.
    pub(crate) name: Option<&'d str>,
    /// Its value, by both.
    pub(crate) original: &'d str,
    pub(crate) ours: &'d str,
}

impl Difference<'_> {
    /// What it is called, if it is known.
    pub(crate) fn known(&self) -> Option<&'static str> {
        let name = self.name?;
        // Both choose.
        if name.to_lowercase().ends_with("periodic_checkpoint") {
            return Some("chance");
        }
        let one_quote = |text: &str| {
            let mut characters: Vec<char> = text.chars().collect();
            characters.dedup_by(|next, one| next == one && "\"'".contains(*one));
            characters.into_iter().collect::<String>()
        };
        if one_quote(self.ours) == one_quote(self.original) {
            return Some("quotes around nothing");
        }
        // Functions of file names take a pair of quotes off, which the original's one quote is not.
        let is_quote = |one: &char| "\"'".contains(*one);
        let bare = |text: &str| {
            text.chars()
                .filter(|one| !is_quote(one))
                .collect::<String>()
        };
        let quotes = |text: &str| text.chars().filter(is_quote).count();
        if has_quoting(self.case)
            && bare(self.ours) == bare(self.original)
            && quotes(self.ours) == quotes(self.original) + 1
        {
            return Some("one of the quotes around nothing");
        }
        // What is cut off a text with a quote more has a character less.
        if has_quoting(self.case)
            && self.case.contains("$SUBSTR(")
            && bare(self.ours)
                .strip_suffix(&bare(self.original))
                .is_some_and(|more| more.chars().count() <= 4)
        {
            return Some("a part of a text with quotes around nothing");
        }
        None
    }
}

/// Whether a function of a file name with `q` is called: `$Fpq(X)`.
fn has_quoting(case: &str) -> bool {
    case.match_indices("$F").any(|(at, _)| {
        let letters = case[at + 2..]
            .split_once('(')
            .map_or("", |(letters, _)| letters);
        letters.contains('q') && letters.bytes().all(|letter| letter.is_ascii_lowercase())
    })
}

/// A quote that is lost anywhere else is no known difference.
#[test]
fn a_quote_is_excused_only_where_a_function_has_quoted_nothing() {
    let known = |case: &str, original: &str, ours: &str| {
        let name = Some("A");
        Difference {
            case,
            name,
            original,
            ours,
        }
        .known()
    };
    let quoting = "L = $Fxq(m) x\nA = $BASENAME(L)\n";
    assert_eq!(known(quoting, "x", "\" x"), None);
    assert_eq!(
        known(quoting, " x", "\" x"),
        Some("one of the quotes around nothing")
    );
    assert_eq!(known(quoting, " x", "\"\" x"), None);
    assert_eq!(known("A = $Fx(m) q(\n", " x", "\" x"), None);
    let cut = "f = $Fxq(g) kx\nA = $SUBSTR(f,2)\n";
    assert_eq!(
        known(cut, "\"x", "k\"\"x"),
        Some("a part of a text with quotes around nothing")
    );
    assert_eq!(known(cut, "kx", "x"), None);
    assert_eq!(known(quoting, "\"x", "k\"\"x"), None);
}
