//! What a process that puts memory of a job in its place ahead is told (docs/adr/0029): agreed on by whoever keeps the seat and the loader.

/// A newer image is there: its descriptor.
pub const IMAGE: u8 = b'i';
/// It is to become the job's supervisor in its namespaces: all descriptors of whoever asks.
pub const INIT: u8 = b'p';
/// Most bytes of a message.
pub const MOST_BYTES: usize = 16 << 10;

/// The message that tells of a newer image; its descriptor goes with it. `argv0` and `path` are without NUL.
#[must_use]
pub fn image(argv0: &[u8], path: &[u8]) -> ([u8; MOST_BYTES], usize) {
    let mut message = [0; MOST_BYTES];
    let mut len = 0;
    let number = NUMBER.to_le_bytes();
    let parts: [&[u8]; 7] = [
        &[IMAGE, 1],
        &number,
        argv0,
        b"\0--image-fd\0",
        b"3",
        b"\0--image-name\0",
        path,
    ];
    for part in parts.into_iter().chain([&b"\0"[..]]) {
        if let Some(place) = message.get_mut(len..len + part.len()) {
            place.copy_from_slice(part);
            len += part.len();
        }
    }
    (message, len)
}

/// The number that the image's descriptor gets.
const NUMBER: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_told_of_with_its_number_and_name() {
        let (message, len) = image(b"wayfarer: job", b"/a/job-1.img");
        let (head, words) = message[..len].split_at(6);
        assert_eq!(head, [IMAGE, 1, 3, 0, 0, 0]);
        let words: Vec<_> = words.split_inclusive(|byte| *byte == 0).collect();
        let expected: [&[u8]; 5] = [
            b"wayfarer: job\0",
            b"--image-fd\0",
            b"3\0",
            b"--image-name\0",
            b"/a/job-1.img\0",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn more_than_a_message_holds_is_left_out() {
        let (_, len) = image(b"job", &[b'x'; MOST_BYTES]);
        assert!(len < 100, "{len}");
    }
}
