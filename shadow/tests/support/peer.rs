//! One end of a stream, as a shim has it.
// Each test uses some of it.
#![allow(dead_code)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use wire::{HEAD_LEN, Head, Hello, Open, Place, Reply, Request, Role, Welcome};

pub(crate) const TOKEN: [u8; 32] = [9; 32];
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
const O_RDWR_CREAT: u32 = 0o102;

/// One end of a stream, as a shim has it.
pub(crate) struct Peer {
    pub(crate) stream: UnixStream,
    pub(crate) number: u64,
}

impl Peer {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).expect("sets");
        stream.set_write_timeout(Some(DEADLINE)).expect("sets");
        Peer { stream, number: 0 }
    }

    pub(crate) fn send(&mut self, kind: u16, body: &[u8], data: &[u8]) {
        self.number += 1;
        let head = Head {
            body_len: body.len() as u32,
            data_len: data.len() as u32,
            number: self.number,
            kind,
            flags: 0,
        };
        let bytes = [&head.to_bytes(), body, data].concat();
        self.stream.write_all(&bytes).expect("sends");
    }

    pub(crate) fn receive(&mut self) -> (Head, Vec<u8>, Vec<u8>) {
        let mut head = [0; HEAD_LEN];
        self.stream.read_exact(&mut head).expect("an answer");
        let head = Head::read(&head).expect("is a head");
        let mut body = vec![0; head.body_len as usize];
        self.stream.read_exact(&mut body).expect("a body");
        let mut data = vec![0; head.data_len as usize];
        self.stream.read_exact(&mut data).expect("data");
        (head, body, data)
    }

    pub(crate) fn hello(&mut self, hello: &Hello) -> Result<Welcome, String> {
        let mut room = [0; 200];
        let len = hello.encode(&mut room).expect("fits");
        self.send(Hello::KIND, &room[..len], &[]);
        let (head, body, _) = self.receive();
        match Reply::decode(head.kind, &body).expect("an answer") {
            Reply::Welcome(welcome) => Ok(welcome),
            Reply::Refused(refusal) => Err(refusal.reason.to_owned()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn greeted(stream: UnixStream) -> (Self, u64) {
        let mut peer = Peer::new(stream);
        let hello = Hello::new(Role::Shim, TOKEN, 0, 0);
        let session = peer.hello(&hello).expect("is welcome").session;
        (peer, session)
    }

    pub(crate) fn ask(&mut self, request: &Request<'_>, data: &[u8]) -> (Reply<'static>, Vec<u8>) {
        self.tell(request, data);
        let number = self.number;
        self.answer(number)
    }

    pub(crate) fn tell(&mut self, request: &Request<'_>, data: &[u8]) {
        let mut room = [0; wire::MOST_BODY];
        let len = request.encode(&mut room).expect("fits");
        self.send(request.kind(), &room[..len], data);
    }

    /// The answer to the request with this number.
    pub(crate) fn answer(&mut self, number: u64) -> (Reply<'static>, Vec<u8>) {
        let (head, body, data) = self.receive();
        assert_eq!(head.number, number);
        let reply = match Reply::decode(head.kind, &body).expect("an answer") {
            Reply::Failed(errno) => Reply::Failed(errno),
            Reply::Opened(opened) => Reply::Opened(opened),
            Reply::Written(written) => Reply::Written(written),
            Reply::Done => Reply::Done,
            Reply::Number(number) => Reply::Number(number),
            Reply::Held(held) => Reply::Held(held),
            Reply::Attributes(attributes) => Reply::Attributes(attributes),
            other => panic!("{other:?}"),
        };
        (reply, data)
    }

    pub(crate) fn open(&mut self, path: &Path) -> Result<u64, u16> {
        let request = Request::Open(Open {
            place: Place {
                at: 0,
                name: path.as_os_str().as_encoded_bytes(),
            },
            flags: O_RDWR_CREAT,
            mode: 0o600,
            first: 0,
        });
        match self.ask(&request, &[]).0 {
            Reply::Opened(opened) => Ok(opened.handle),
            Reply::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    /// The reason for which the stream ends, if it is told, and its end.
    pub(crate) fn end(mut self) -> Option<String> {
        let mut rest = vec![];
        self.stream.read_to_end(&mut rest).expect("ends");
        let head = Head::read(&rest).ok()?;
        match Reply::decode(head.kind, &rest[HEAD_LEN..]) {
            Ok(Reply::Refused(refusal)) => Some(refusal.reason.to_owned()),
            other => panic!("{other:?}"),
        }
    }
}
