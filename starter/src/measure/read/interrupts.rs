//! `/proc/interrupts` (proc(5)): keys and mice that have an interrupt of their own.
//!
//! A USB keyboard has none (its controller's also counts for disks), as in the original.

/// Words in the name of such an interrupt.
const OF_HANDS: [&str; 6] = ["i8042", "keyboard", "mouse", "touchpad", "hid", "usbhid"];

/// How often a key was pressed or a mouse moved, in units that mean nothing: only that it changed does. None if no such device has an interrupt.
pub(in crate::measure) fn presses(text: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let mut sum = None::<u64>;
    for (_, rest) in text.lines().filter_map(super::field) {
        let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let counts = rest.split_whitespace().take_while(is_number);
        let is_name = |c: char| !c.is_ascii_alphanumeric();
        if !rest.split(is_name).any(|word| OF_HANDS.contains(&word)) {
            continue;
        }
        for count in counts {
            let count = count.parse::<u64>().unwrap_or(0);
            sum = Some(sum.unwrap_or(0).wrapping_add(count));
        }
    }
    sum
}
