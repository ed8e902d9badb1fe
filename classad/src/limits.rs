//! What hostile texts and ads may cost.

/// How deep parsing and evaluating go, and how much they may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nested expressions of a text; brackets of any kind count three. The original's is about 500.
    pub nesting: usize,
    /// How tall a tree may be, as that of `a || b || …` is.
    pub height: usize,
    /// The longest text.
    pub text_bytes: usize,
    /// Operators and references that are evaluated within each other. The original's is 400.
    pub depth: usize,
    /// Operators, references and calls of one evaluation.
    pub steps: u64,
    /// The longest string an evaluation may make.
    pub string_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            nesting: 500,
            height: 2_000,
            text_bytes: 16 << 20,
            depth: 400,
            steps: 2_000_000,
            string_bytes: 4 << 20,
        }
    }
}
