//! Frames of a line: any bytes are pieces of some, or an error, and the same however they are cut; and what either side says first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use line::{FRAME_HEAD, Frame, FrameError, MOST_FRAME, Piece, Pieces, Preface};

/// Data of one frame in one piece, however many parts they came in.
#[derive(Debug, PartialEq)]
enum Whole {
    Data(u32, Vec<u8>),
    Other([u8; FRAME_HEAD]),
}

fn take(parts: &[&[u8]]) -> (Vec<Whole>, Option<FrameError>) {
    let (mut pieces, mut found) = (Pieces::default(), vec![]);
    for part in parts {
        let mut rest = *part;
        loop {
            let frame = match pieces.next(&mut rest) {
                Ok(Some(Piece::Data(stream, data))) => {
                    assert!(!data.is_empty() && data.len() <= MOST_FRAME);
                    match found.last_mut() {
                        Some(Whole::Data(last, all)) if *last == stream => all.extend(data),
                        _ => found.push(Whole::Data(stream, data.to_vec())),
                    }
                    continue;
                }
                Ok(Some(Piece::Open(stream, purpose))) => Frame::Open(stream, purpose),
                Ok(Some(Piece::Close(stream))) => Frame::Close(stream),
                Ok(Some(Piece::Credit(stream, len))) => Frame::Credit(stream, len),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            };
            assert_eq!(Frame::read(frame.to_bytes()), Ok(frame));
            found.push(Whole::Other(frame.to_bytes()));
        }
        assert!(rest.is_empty(), "all is taken");
    }
    (found, None)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((step, bytes)) = bytes.split_first() else {
        return;
    };
    let cut: Vec<_> = bytes.chunks(usize::from(*step).max(1)).collect();
    assert_eq!(take(&cut), take(&[bytes]));
    let _ = Preface::read(&mut &bytes[..]);
    let _ = Preface {
        token: [0; 32],
        environment: None,
    }
    .exchange(&mut &bytes[..], &mut std::io::sink());
});
