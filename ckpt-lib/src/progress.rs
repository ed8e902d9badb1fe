//! Progress of long work, told to whoever wants to show it.
//!
//! # What callers may rely on
//! Steps come one after another; `advance` counts only the step begun last.
//! It may be called often (every chunk) and must be cheap.

/// Somebody who wants to know how far a long piece of work has come.
pub trait Progress: Send {
    /// A step begins and the one before it has ended: "writing image", with the bytes it will
    /// have gone through at its end if that is known.
    fn begin(&mut self, step: &str, total_bytes: Option<u64>);

    /// So many more bytes of this step are done.
    fn advance(&mut self, bytes: u64);
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _step: &str, _total_bytes: Option<u64>) {}
    fn advance(&mut self, _bytes: u64) {}
}
