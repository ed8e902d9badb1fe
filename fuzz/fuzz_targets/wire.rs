//! Messages of a peer: any bytes are one, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{AllForeseen, AllSought, Entries, HEAD_LEN, Head, Hello, Reply, Request};

fuzz_target!(|bytes: &[u8]| {
    let Ok(head) = Head::read(bytes) else { return };
    let rest = &bytes[HEAD_LEN..];
    let (body, data) = rest.split_at(rest.len().min(head.body_len as usize));
    let _ = Hello::decode(body);
    if let Ok(request) = Request::decode(head.kind, body) {
        let mut room = vec![0; 2 * wire::MOST_BODY];
        let len = request.encode(&mut room).expect("what was decoded fits");
        assert_eq!(Request::decode(head.kind, &room[..len]), Ok(request));
    }
    let _ = Reply::decode(head.kind, body);
    let _ = Entries::new(data).count();
    let _ = AllForeseen::new(data).count() + AllSought::new(data).count();
});
