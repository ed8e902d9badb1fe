//! Numbers and records as bytes.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};

/// Nothing that is decoded may make us reserve more than this.
const MOST: usize = 16 << 20;

fn config() -> Configuration<LittleEndian, Varint, Limit<MOST>> {
    bincode::config::standard().with_limit::<MOST>()
}

/// A record's bytes.
pub(crate) fn encode<T: Encode>(value: &T) -> Option<Vec<u8>> {
    bincode::encode_to_vec(value, config()).ok()
}

/// A record of exactly these bytes.
pub(crate) fn decode<T: Decode<()>>(bytes: &[u8]) -> Option<T> {
    match bincode::decode_from_slice(bytes, config()) {
        Ok((value, read)) if read == bytes.len() => Some(value),
        _ => None,
    }
}

/// The number at `at`, 0 behind the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let place = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    place.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The number at `at`, 0 behind the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let place = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    place.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
