//! Any bytes are a configuration or an error, in every dialect; what is read can be asked.
#![no_main]

use classad::Nowhere;
use classad::config::{Config, ConfigOptions, Dialect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for dialect in Dialect::ALL {
        let options = ConfigOptions {
            dialect,
            ..ConfigOptions::default()
        };
        let Ok(config) = Config::examine_text(bytes, &Nowhere, &options) else {
            continue;
        };
        for name in config.names() {
            assert!(config.get(name).as_deref() != Some(""));
            let _ = config.expression(name);
            let _ = config.get_for_universe(name, 5);
        }
    }
});
