//! Machines that give less than the job's own: limits, and room in pipes and sockets.

use crate::filter;
use crate::images::{Ended, PID, STACK, TestImage, execute, finish, map, tiny};
use crate::restore::{Code, alone, hello, hello_image};
use ckpt_lib::plan::{Arg, StreamIndex};
use loader::ops::Expect;
use std::process::Command;

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
    tiny.unread(202, vec![7; 50_000]);
    let refill = loader::ops::Refill {
        slot: 201,
        from: 202,
        at: 10_000,
        len: 40_000,
    };
    let label = b"pipe 0 (40000 bytes unread, capacity 65536)\0";
    tiny.ops.push(prepare, &refill, label);
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
    tiny.unread(202, vec![7; 100_000]);
    let send = loader::ops::Send {
        slot: 200,
        from: 202,
        len: 100_000,
        ..loader::ops::Send::default()
    };
    // The kernel doubles what it is given (socket(7)).
    let most = std::fs::read_to_string("/proc/sys/net/core/wmem_max").expect("reads");
    let most: u64 = most.trim().parse().expect("a number");
    for _ in 0..2 * most / send.len + 100 {
        tiny.ops.push(StreamIndex(0), &send, b"socket 1\0");
    }
    let ended = execute(&alone(tiny), &[]);
    assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
    let expected = "socket 1: its unread messages do not fit: the send buffer found is of ";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

/// Executes an image with a lower soft limit.
fn execute_limited(image: &TestImage, limit: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -S {limit}; exec \"$0\"")]);
    command.arg(&image.path);
    finish(command)
}

#[test]
fn soft_limits_of_the_restarter_are_raised_as_far_as_they_go() {
    let mut tiny = hello();
    let (process, at, len) = (tiny.process, 0x2000_0000, 1 << 20);
    map(&mut tiny.ops, process, at, len, 3);
    let args = [at, len, 0].map(Arg::Value);
    let nr = libc::SYS_mlock2;
    tiny.ops
        .call(process, "mlock", nr, &args, Expect::Success, 0);
    // Half a gibibyte, not reserved.
    map(&mut tiny.ops, process, 0x4000_0000, 512 << 20, 0);
    let image = alone(tiny);
    for limit in ["-l 64", "-v 300000", "-d 100000"] {
        let ended = execute_limited(&image, limit);
        let found = (ended.code(), ended.stderr.as_str());
        assert_eq!(found, (Some(5), ""), "{limit}");
    }
}

#[test]
fn an_input_pipe_with_unread_bytes_needs_descriptors_too() {
    // Reads five bytes from descriptor 7 and ends with their number.
    let code = Code::default()
        .call(libc::SYS_read, &[7, STACK as u32, 100])
        .bytes(&[0x83, 0xf8, 5]) // cmp eax, 5
        .or_exit(3)
        .exit(5);
    let mut tiny = tiny(&code.0);
    tiny.unread(201, b"with bytes".to_vec());
    let feed = loader::ops::Feed {
        slot: 200,
        fd: 0,
        flags: 0,
        from: 201,
        at: 5,
        len: 5,
    };
    tiny.ops.push(StreamIndex(0), &feed, &[]);
    let args = [200, 7, 0].map(Arg::Value);
    let (process, nr) = (tiny.process, libc::SYS_dup3);
    tiny.ops
        .call(process, "descriptor 7", nr, &args, Expect::Exactly, 7);
    let image = alone(tiny);
    // Below the slots; exactly the loader's own; enough.
    for limit in ["-n 64", "-n 220", "-n 1024"] {
        let ended = execute_limited(&image, limit);
        let found = (ended.code(), ended.stderr.as_str());
        assert_eq!(found, (Some(5), ""), "{limit}");
    }
}

#[test]
fn a_filter_that_refuses_clone3_is_no_obstacle_without_ids() {
    let image = alone(hello());
    for errno in [libc::EPERM, libc::ENOSYS] {
        let mut command = Command::new(&image.path);
        command.args(["--pids", "host", "--accept-new-ids"]);
        filter::refuse(&mut command, libc::SYS_clone3, errno);
        let ended = finish(command);
        let found = (ended.code(), ended.stdout.as_str(), ended.stderr.as_str());
        assert_eq!(found, (Some(5), "went on\n", ""), "{errno}");
    }
    // Nor is an option advised that was given.
    let mut command = Command::new(&image.path);
    command.args(["--pids", "host", "--accept-new-ids"]);
    for nr in [libc::SYS_clone, libc::SYS_clone3] {
        filter::refuse(&mut command, nr, libc::EPERM);
    }
    let ended = finish(command);
    assert_ne!(ended.code(), Some(5));
    assert!(ended.stderr.contains("EPERM"), "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("--accept-new-ids"),
        "{}",
        ended.stderr
    );
}

#[test]
fn an_owner_of_a_descriptor_is_found_under_its_new_id() {
    const F_GETOWN: u32 = 9;
    const F_SETOWN_EX: u64 = 15;
    let code = Code::default()
        .call(libc::SYS_fcntl, &[7, F_GETOWN])
        .bytes(&[0x89, 0xc3]) // mov ebx, eax
        .call(libc::SYS_getpid, &[])
        .bytes(&[0x39, 0xd8]) // cmp eax, ebx
        .or_exit(3)
        .exit(5);
    let mut tiny = tiny(&code.0);
    let pipe = loader::ops::Pipe {
        read_slot: 200,
        write_slot: 201,
        flags: 0,
    };
    tiny.ops.push(StreamIndex(0), &pipe, &[]);
    let process = tiny.process;
    let mut call = |nr, args: &[Arg], expect, value| {
        tiny.ops
            .call(process, "descriptor 7", nr, args, expect, value);
    };
    let place = [200, 7, 0].map(Arg::Value);
    call(libc::SYS_dup3, &place, Expect::Exactly, 7);
    // A process, by its old id.
    let owner = [1u32.to_le_bytes(), (PID as u32).to_le_bytes()].concat();
    let owner = [Arg::Value(7), Arg::Value(F_SETOWN_EX), Arg::Bytes(owner)];
    call(libc::SYS_fcntl, &owner, Expect::Success, 0);
    let image = alone(tiny);
    for options in [&["--pids", "host", "--accept-new-ids"][..], &[]] {
        let ended = execute(&image, options);
        let found = (ended.code(), ended.stderr.as_str());
        assert_eq!(found, (Some(5), ""), "{options:?}");
    }
}

/// Descriptors that the loader is told of, where it is about to put others.
#[test]
fn what_it_is_given_may_have_the_number_of_another() {
    let image = hello_image();
    let header = *hello().ops.header_mut();
    let own = header.slot_base + header.slot_count;
    // The image's, the keeper's and the starter's.
    for [from, starter] in [[0, 8], [0, 10], [8, 0], [8, 10], [10, 0], [10, 8], [9, 0]] {
        let (from, starter) = (own + from, own + starter);
        let line = format!(
            "exec \"$0\" --image-fd {from} --starter-fd {starter} {from}<\"$0\" {starter}>/dev/null"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &line]).arg(&image.path);
        let ended = finish(command);
        let found = (ended.code(), ended.stdout.as_str(), ended.stderr.as_str());
        assert_eq!(found, (Some(5), "went on\n", ""), "{from} {starter}");
    }
}
