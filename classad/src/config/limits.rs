//! What a hostile configuration may cost.

/// How large and how deep a configuration may be.
#[derive(Clone, Copy, Debug)]
pub struct ConfigLimits {
    /// Files and templates that bring in each other. The original's is 20.
    pub nesting: usize,
    /// `if` within `if`. The original's is 63.
    pub conditions: usize,
    /// Bytes of one file, or of what a command prints.
    pub file_bytes: usize,
    /// Bytes of one value, as written or expanded.
    pub value_bytes: usize,
    /// Bytes of all that is read, kept and expanded.
    pub total_bytes: usize,
    /// Bytes that expanding looks at.
    pub work_bytes: u64,
    /// Macro functions whose arguments are macros.
    pub depth: usize,
}

impl Default for ConfigLimits {
    fn default() -> Self {
        Self {
            nesting: 20,
            conditions: 63,
            file_bytes: 4 << 20,
            value_bytes: 1 << 20,
            total_bytes: 64 << 20,
            work_bytes: 256 << 20,
            depth: 60,
        }
    }
}
