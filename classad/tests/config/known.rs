//! Where both differ, and why: docs/CONFIG.md has each of them.

/// What decides about a difference.
pub(crate) struct Difference<'d> {
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
        None
    }
}
