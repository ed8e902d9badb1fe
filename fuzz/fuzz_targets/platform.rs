//! The platform string.
#![no_main]

use ckpt_lib::platform::Platform;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(platform) = text.parse::<Platform>() {
        let again: Platform = platform.to_string().parse().expect("is read again");
        assert!(again == platform);
        assert!(
            platform.missing(&again).is_empty(),
            "it lacks nothing of itself"
        );
    }
});
