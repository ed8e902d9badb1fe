//! The operation list.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loader::ops::OpsList;

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = OpsList::read(bytes) else {
        return;
    };
    for index in 0..list.header().streams {
        let entry = list.stream(index).expect("checked");
        for record in list.records(&entry) {
            let record = record.expect("checked");
            assert!(record.offset + record.tail.len() <= bytes.len());
        }
    }
});
