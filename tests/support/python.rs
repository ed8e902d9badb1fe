//! Guests that are scripts of a few lines.

use super::scenario::Guest;

/// What every script begins with: `ready()` says so and waits until the test lets it go.
const PRELUDE: &str = r#"
import mmap, os, socket, sys, time
def ready():
    print("READY", flush=True)
    while not os.path.exists(os.environ["WF_GO"]):
        time.sleep(0.01)
"#;

/// A guest that is this script.
pub fn python(label: &str, script: &str) -> Guest {
    let script = format!("{PRELUDE}{script}");
    Guest::new(label, "/usr/bin/python3", &["-c", &script])
}
