//! A machine's day as a file tells it (docs/POLICY.md): any bytes are one, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use starter::simulate::Trace;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = Trace::parse(bytes) {
        assert!(trace.rows.iter().map(|row| row.at).is_sorted());
    }
});
