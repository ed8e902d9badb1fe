//! Records of an undo journal: any bytes are one, or an error.
#![no_main]

use journal::{Frame, Key};
use libfuzzer_sys::fuzz_target;

const KEY: Key = [0; 32];

fuzz_target!(|bytes: &[u8]| {
    let _ = Frame::read(&KEY, 0, bytes);
    let _ = journal::is_record(&KEY, bytes);
    // Behind the checksum, where only somebody who can make one gets.
    if let [kind, split, rest @ ..] = bytes {
        let (body, data) = rest.split_at(rest.len().min(usize::from(*split)));
        let _ = journal::is_body(u16::from(*kind % 8), body, data);
    }
});
