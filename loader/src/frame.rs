//! One chunk that is stored as a zstd frame (RFC 8878).

use ruzstd::decoding::FrameDecoder;

/// Whoever decodes has room for such a window; a chunk needs no more than its own length.
const LARGEST_WINDOW: u64 = 1 << 20;

/// Bytes of a frame's contents, if its header says, and of its window (RFC 8878, 3.1.1.1).
fn frame_sizes(frame: &[u8]) -> Option<(u64, u64)> {
    let rest = frame.strip_prefix(&0xfd2f_b528u32.to_le_bytes())?;
    let (descriptor, rest) = rest.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    let (window, rest) = match single_segment {
        true => (None, rest),
        false => {
            let (byte, rest) = rest.split_first()?;
            let base = 1u64 << (10 + (byte >> 3));
            (Some(base + base / 8 * u64::from(byte & 7)), rest)
        }
    };
    // No dictionary was used, and the bit that is reserved is not set.
    if descriptor & (3 | 8) != 0 {
        return None;
    }
    let len = match (descriptor >> 6, single_segment) {
        (0, false) => return None,
        (0, true) => 1,
        (bits, _) => 1 << bits,
    };
    let mut word = [0; 8];
    word[..len].copy_from_slice(rest.get(..len)?);
    let content = u64::from_le_bytes(word) + if len == 2 { 256 } else { 0 };
    Some((content, window.unwrap_or(content)))
}

/// Decodes one frame to exactly `to.len()` bytes. It allocates: tables, and a window of 1 MiB at most.
///
/// # Errors
/// What is wrong with the frame.
pub fn decode(frame: &[u8], to: &mut [u8]) -> Result<(), &'static str> {
    if frame_sizes(frame)
        .is_none_or(|(content, window)| content != to.len() as u64 || window > LARGEST_WINDOW)
    {
        return Err("a zstd frame whose header does not give its chunk's length");
    }
    match FrameDecoder::new().decode_all(frame, to) {
        Ok(len) if len == to.len() => Ok(()),
        Ok(_) => Err("the zstd frame is shorter than its chunk"),
        Err(_) => Err("not a zstd frame of its chunk's length"),
    }
}
