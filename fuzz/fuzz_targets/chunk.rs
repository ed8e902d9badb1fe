//! A chunk that is stored as a zstd frame: what was compressed is read again, and nothing panics whatever else is there. (Damage is told by
//! the chunk's checksum: of a damaged frame two decoders may make two things.) The first byte says whether the frame is what
//! follows, or what follows is compressed and a byte of the frame changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loader::layout::CHUNK;

/// Kind, place and bits of the change, length of the chunk.
const PARAMETERS: usize = 6;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, place @ .., bits, low, high], rest)) =
        bytes.split_first_chunk::<PARAMETERS>()
    else {
        return;
    };
    if kind % 2 == 0 {
        let said = zstd::bulk::Decompressor::upper_bound(rest);
        let said = said.filter(|said| *said as u64 <= CHUNK);
        let len = said.unwrap_or(usize::from(u16::from_le_bytes([low, high])));
        let _ = loader::frame::decode(rest, &mut vec![0; len]);
        return;
    }
    let chunk = rest.repeat(1 + usize::from(low));
    let chunk = &chunk[..chunk.len().min(CHUNK as usize)];
    let mut frame = zstd::bulk::compress(chunk, i32::from(high % 19)).expect("compresses");
    let place = usize::from(u16::from_le_bytes(place)) % frame.len();
    frame[place] ^= bits;
    let mut unpacked = vec![0; chunk.len()];
    let read = loader::frame::decode(&frame, &mut unpacked);
    if bits == 0 {
        assert_eq!(read, Ok(()));
        assert!(unpacked == chunk, "another chunk");
    }
});
