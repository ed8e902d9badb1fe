//! Chunks stored as zstd frames.

/// Decodes one frame to exactly `to.len()` bytes.
pub fn decode(_frame: &[u8], _to: &mut [u8], _scratch: &mut [u8]) -> Result<(), &'static str> {
    Err("compressed chunks are not supported by this loader")
}
