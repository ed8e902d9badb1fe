//! The snapshot.
#![no_main]

use ckpt_lib::image::{Image, decode_snapshot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(snapshot) = decode_snapshot(bytes) {
        let again = Image::encode_snapshot(&snapshot).expect("encodes");
        assert!(decode_snapshot(&again).expect("decodes") == snapshot);
    }
});
