//! What a shadow has saved, in an image or on its disk: any bytes are a state of a session, or its log, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    shadow::fuzzed::saved(bytes);
    shadow::fuzzed::log(bytes);
});
