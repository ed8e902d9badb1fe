//! `/proc/bus/input/devices`: which of the input devices are keyboards and mice.

/// Their names beneath `/dev/input`, `event0`.
pub(in crate::measure) fn input_devices(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut found = vec![];
    for line in text.lines() {
        let Some(handlers) = line.strip_prefix("H: Handlers=") else {
            continue;
        };
        let words = || handlers.split_whitespace();
        let by_hand = words().any(|word| word == "kbd" || word.starts_with("mouse"));
        let is_event = |word: &&str| {
            let number = word.strip_prefix("event");
            number.is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        if by_hand {
            found.extend(words().filter(is_event).map(str::to_owned));
        }
    }
    found
}
