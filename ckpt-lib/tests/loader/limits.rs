//! Machines that give less than the job's own: limits, and room in pipes and sockets.

use crate::images::execute;
use crate::restore::{alone, hello};
use ckpt_lib::plan::{Arg, StreamIndex};
use loader::ops::Expect;

#[test]
fn a_pipe_that_gets_too_little_room_ends_the_restart() {
    // 40000 bytes for a pipe of one page.
    let mut tiny = hello();
    let (prepare, pipe) = (
        StreamIndex(0),
        loader::ops::Pipe {
            read_slot: 200,
            write_slot: 201,
            flags: 0,
        },
    );
    tiny.ops.push(prepare, &pipe, &[]);
    let (capacity, flags) = (libc::F_SETPIPE_SZ as u64, libc::F_SETFL as u64);
    for (command, value) in [(capacity, 4096), (flags, libc::O_NONBLOCK as u64)] {
        let args = [201, command, value].map(Arg::Value);
        let nr = libc::SYS_fcntl;
        tiny.ops
            .call(prepare, "pipe", nr, &args, Expect::Success, 0);
    }
    let args = [
        Arg::Value(201),
        Arg::Bytes(vec![7; 40_000]),
        Arg::Value(40_000),
    ];
    let label = "pipe 0 (40000 bytes unread, capacity 65536)";
    tiny.ops.call(
        prepare,
        label,
        libc::SYS_write,
        &args,
        Expect::Exactly,
        40_000,
    );
    let ended = execute(&alone(tiny), &[]);
    assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
    let expected = "pipe 0 (40000 bytes unread, capacity 65536): it does not fit: this machine gives the \
                    pipe 4096 bytes";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn a_message_that_does_not_fit_ends_the_restart() {
    let mut tiny = hello();
    let pair = loader::ops::SocketPair {
        first_slot: 200,
        second_slot: 201,
        kind: libc::SOCK_STREAM as u64,
    };
    tiny.ops.push(StreamIndex(0), &pair, &[]);
    let message = vec![7u8; 100_000];
    let send = loader::ops::Send {
        slot: 200,
        len: message.len() as u64,
        ..loader::ops::Send::default()
    };
    let tail = [&message[..], b"socket 1\0"].concat();
    for _ in 0..100 {
        tiny.ops.push(StreamIndex(0), &send, &tail);
    }
    let ended = execute(&alone(tiny), &[]);
    assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
    let expected = "socket 1: its unread messages do not fit: the send buffer found is of ";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}
