//! Locks on streams: waiting, being interrupted, processes and descriptions that end.
#![allow(clippy::disallowed_methods)]

#[path = "support/peer.rs"]
mod peer;

use peer::{DEADLINE, Peer, TOKEN};
use rustix::fs::inotify;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use shadow::{Allowed, Limits, Server, Sessions};
use std::fs;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::{
    Attend, Close, Hello, Interrupt, Lock, LockMode, LockOwner, Release, Reply, Request, Role,
    Span, TestLock, WatchEnds,
};

const EPERM: u16 = 1;
const EINTR: u16 = 4;
const EBADF: u16 = 9;
const EAGAIN: u16 = 11;
const EDEADLK: u16 = 35;
const ENOLCK: u16 = 37;
const ENOTSUP: u16 = 95;
/// For what is not to happen.
const A_WHILE: Duration = Duration::from_millis(100);

/// A served folder, and one session.
struct Home {
    directory: tempfile::TempDir,
    session: u64,
    /// Keeps the session.
    first: Peer,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut allowed = Allowed::none();
        let path = directory.path().to_owned();
        allowed.allow(path.clone(), true).expect("allowed");
        let sessions = Sessions::new(allowed, TOKEN, Limits::default());
        let server = Server::bind(&path.join("socket"), sessions).expect("listens");
        std::thread::spawn(move || server.run());
        let (first, session) = Peer::greeted(connect(&path.join("socket")));
        Home {
            directory,
            session,
            first,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn peer(&self) -> Peer {
        let mut peer = Peer::new(connect(&self.at("socket")));
        let hello = Hello::new(Role::Shim, TOKEN, self.session, 0);
        peer.hello(&hello).expect("joins");
        peer
    }

    /// A process: its stream and its number.
    fn process(&self, pid: u32) -> (Peer, u64) {
        let mut peer = self.peer();
        match reply(&mut peer, Request::Attend(Attend { number: 0, pid })) {
            Reply::Number(number) => (peer, number),
            other => panic!("{other:?}"),
        }
    }
}

fn connect(path: &std::path::Path) -> UnixStream {
    UnixStream::connect(path).expect("connects")
}

fn reply(peer: &mut Peer, request: Request<'_>) -> Reply<'static> {
    peer.ask(&request, &[]).0
}

fn lock(handle: u64, owner: LockOwner, first: u64, mode: Option<LockMode>) -> Lock {
    let span = Span { first, last: first };
    Lock {
        handle,
        owner,
        mode,
        span,
        wait: false,
        watch: 0,
    }
}

const EXCLUSIVE: Option<LockMode> = Some(LockMode::Exclusive);

fn exclusive(handle: u64, process: u64, byte: u64) -> Request<'static> {
    Request::Lock(lock(handle, LockOwner::Process(process), byte, EXCLUSIVE))
}

fn waits(handle: u64, process: u64, byte: u64) -> Request<'static> {
    let asked = lock(handle, LockOwner::Process(process), byte, EXCLUSIVE);
    waiting(asked)
}

fn waiting(lock: Lock) -> Request<'static> {
    Request::Lock(Lock { wait: true, ..lock })
}

fn unlock(handle: u64, process: u64, byte: u64) -> Request<'static> {
    Request::Lock(lock(handle, LockOwner::Process(process), byte, None))
}

/// Nothing comes for a while.
fn is_silent(peer: &mut Peer) {
    peer.stream.set_read_timeout(Some(A_WHILE)).expect("sets");
    let nothing = std::io::Read::read(&mut peer.stream, &mut [0]);
    assert!(nothing.is_err(), "it was answered");
    peer.stream.set_read_timeout(Some(DEADLINE)).expect("sets");
}

fn answer(peer: &mut Peer) -> Reply<'static> {
    let number = peer.number;
    peer.answer(number).0
}

#[test]
fn waiting_blocks_no_stream_and_ends_when_the_lock_is_free() {
    let mut home = Home::new();
    let handle = home.first.open(&home.at("file")).expect("opens");
    let (_a, one) = home.process(11);
    let (_b, two) = home.process(22);
    let (mut lane, mut waiter) = (home.peer(), home.peer());
    assert_eq!(reply(&mut lane, exclusive(handle, one, 5)), Reply::Done);
    assert_eq!(
        reply(&mut lane, exclusive(handle, two, 5)),
        Reply::Failed(EAGAIN)
    );
    waiter.tell(&waits(handle, two, 5), &[]);
    is_silent(&mut waiter);
    let test = TestLock {
        handle,
        owner: LockOwner::Process(two),
        mode: LockMode::Shared,
        span: Span::ALL,
    };
    match reply(&mut lane, Request::TestLock(test)) {
        Reply::Held(held) => assert_eq!((held.pid, held.span.first), (11, 5)),
        other => panic!("{other:?}"),
    }
    assert_eq!(reply(&mut lane, unlock(handle, one, 5)), Reply::Done);
    assert_eq!(answer(&mut waiter), Reply::Done);
    assert_eq!(
        reply(&mut lane, exclusive(handle, one, 5)),
        Reply::Failed(EAGAIN)
    );
}

#[test]
fn an_interrupted_wait_is_answered_once_and_the_stream_goes_on() {
    let mut home = Home::new();
    let handle = home.first.open(&home.at("file")).expect("opens");
    let (_a, one) = home.process(1);
    let (_b, two) = home.process(2);
    let mut lane = home.peer();
    assert_eq!(reply(&mut lane, exclusive(handle, one, 0)), Reply::Done);
    let mut waiter = home.peer();
    for pause in [Duration::ZERO, A_WHILE] {
        waiter.tell(&waits(handle, two, 0), &[]);
        let asked = waiter.number;
        std::thread::sleep(pause);
        waiter.tell(&Request::Interrupt(Interrupt {}), &[]);
        let (answer, _) = waiter.answer(asked);
        let interrupted = [Reply::Failed(EINTR), Reply::Failed(EAGAIN)];
        assert!(interrupted.contains(&answer), "{answer:?}");
    }
    // One that comes too late ends nothing.
    waiter.tell(&waits(handle, two, 9), &[]);
    assert_eq!(answer(&mut waiter), Reply::Done);
    waiter.tell(&Request::Interrupt(Interrupt {}), &[]);
    assert_eq!(reply(&mut waiter, unlock(handle, two, 9)), Reply::Done);
    assert_eq!(reply(&mut lane, unlock(handle, one, 0)), Reply::Done);
    // What was interrupted has nothing.
    assert_eq!(reply(&mut lane, exclusive(handle, one, 0)), Reply::Done);
}

#[test]
fn the_end_of_a_process_frees_its_locks_and_its_waits() {
    let mut home = Home::new();
    let handle = home.first.open(&home.at("file")).expect("opens");
    let (mut lane, mut waiter, mut other) = (home.peer(), home.peer(), home.peer());
    let (_a, one) = home.process(1);
    let (_b, three) = home.process(3);
    assert_eq!(reply(&mut lane, exclusive(handle, three, 1)), Reply::Done);
    for _ in 0..50 {
        let (dies, two) = home.process(2);
        assert_eq!(reply(&mut lane, exclusive(handle, two, 0)), Reply::Done);
        waiter.tell(&waits(handle, one, 0), &[]);
        other.tell(&waits(handle, two, 1), &[]);
        // It is not in the way from its end on, whether that has been read or not.
        drop(dies);
        assert_eq!(answer(&mut waiter), Reply::Done);
        assert_eq!(answer(&mut other), Reply::Failed(ENOLCK));
        assert_eq!(
            reply(&mut lane, exclusive(handle, two, 5)),
            Reply::Failed(ENOLCK)
        );
        assert_eq!(reply(&mut lane, unlock(handle, one, 0)), Reply::Done);
    }
}

#[test]
fn two_that_wait_for_each_other_are_told() {
    let mut home = Home::new();
    let handle = home.first.open(&home.at("file")).expect("opens");
    let (_a, one) = home.process(1);
    let (_b, two) = home.process(2);
    let (mut lane, mut waiter) = (home.peer(), home.peer());
    assert_eq!(reply(&mut lane, exclusive(handle, one, 1)), Reply::Done);
    assert_eq!(reply(&mut lane, exclusive(handle, two, 2)), Reply::Done);
    waiter.tell(&waits(handle, one, 2), &[]);
    // The second is told, so this is to be the first; nobody can see that it waits.
    std::thread::sleep(Duration::from_secs(1));
    is_silent(&mut waiter);
    assert_eq!(
        reply(&mut lane, waits(handle, two, 1)),
        Reply::Failed(EDEADLK)
    );
    assert_eq!(reply(&mut lane, unlock(handle, two, 2)), Reply::Done);
    assert_eq!(answer(&mut waiter), Reply::Done);
}

#[test]
fn what_is_closed_by_an_exec_is_free_only_after_it() {
    let mut home = Home::new();
    let handle = home.first.open(&home.at("file")).expect("opens");
    let (mut stream, one) = home.process(1);
    let (_b, two) = home.process(2);
    let mut lane = home.peer();
    let release = |handle, at_exec| {
        Request::Release(Release {
            process: one,
            handle,
            at_exec,
        })
    };
    let is_held = |lane: &mut Peer| {
        let tried = reply(lane, exclusive(handle, two, 0));
        assert_eq!(reply(lane, unlock(handle, two, 0)), Reply::Done);
        tried == Reply::Failed(EAGAIN)
    };
    assert_eq!(reply(&mut lane, exclusive(handle, one, 0)), Reply::Done);
    assert_eq!(reply(&mut lane, release(handle, true)), Reply::Done);
    // It failed.
    assert_eq!(reply(&mut lane, release(0, false)), Reply::Done);
    let again = |pid| Request::Attend(Attend { number: 0, pid });
    assert_eq!(reply(&mut stream, again(1)), Reply::Number(one));
    assert!(is_held(&mut lane));
    assert_eq!(reply(&mut lane, release(handle, true)), Reply::Done);
    assert!(is_held(&mut lane));
    assert_eq!(
        reply(&mut stream, again(7)),
        Reply::Failed(EPERM),
        "another's"
    );
    assert!(is_held(&mut lane));
    assert_eq!(reply(&mut stream, again(1)), Reply::Number(one));
    assert!(!is_held(&mut lane));
    assert_eq!(reply(&mut lane, exclusive(handle, one, 0)), Reply::Done);
    assert_eq!(reply(&mut lane, release(handle, false)), Reply::Done);
    assert!(!is_held(&mut lane));
}

#[test]
fn a_wait_ends_with_what_it_is_by() {
    let mut home = Home::new();
    let one = home.first.open(&home.at("file")).expect("opens");
    let two = home.first.open(&home.at("file")).expect("opens");
    for owner in [LockOwner::Description, LockOwner::Whole] {
        let (mut lane, mut waiter) = (home.peer(), home.peer());
        let held = Request::Lock(lock(one, owner, 0, EXCLUSIVE));
        assert_eq!(reply(&mut lane, held), Reply::Done);
        let third = home.first.open(&home.at("file")).expect("opens");
        let wanted = lock(third, owner, 0, EXCLUSIVE);
        waiter.tell(&waiting(wanted), &[]);
        is_silent(&mut waiter);
        let close = Request::Close(Close { handle: third });
        assert_eq!(reply(&mut lane, close), Reply::Done);
        // Whoever waits by polling sees it at the next look.
        assert_eq!(answer(&mut waiter), Reply::Failed(EBADF));
        let wanted = lock(two, owner, 0, EXCLUSIVE);
        waiter.tell(&waiting(wanted), &[]);
        is_silent(&mut waiter);
        let freed = Request::Lock(lock(one, owner, 0, None));
        assert_eq!(reply(&mut lane, freed), Reply::Done);
        assert_eq!(answer(&mut waiter), Reply::Done);
        let given_back = Request::Lock(lock(two, owner, 0, None));
        assert_eq!(reply(&mut lane, given_back), Reply::Done);
    }
}

/// Sends a request with a descriptor.
fn send_with(peer: &mut Peer, request: &Request<'_>, fd: BorrowedFd<'_>) {
    peer.number += 1;
    let mut message = [0; 64];
    let len = request.message(peer.number, 0, &mut message).expect("fits");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let descriptors = [fd];
    assert!(with.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let parts = [IoSlice::new(&message[..len])];
    let sent = sendmsg(&peer.stream, &parts, &mut with, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(len));
}

#[test]
fn a_description_that_has_ended_has_no_locks_though_it_was_not_closed() {
    let mut home = Home::new();
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let ends = inotify::init(flags).expect("is made");
    let watched = home.peer().ask(&Request::WatchEnds(WatchEnds {}), &[]).0;
    assert_eq!(watched, Reply::Failed(ENOTSUP), "nothing came with it");
    let mut starter = home.peer();
    send_with(
        &mut starter,
        &Request::WatchEnds(WatchEnds {}),
        ends.as_fd(),
    );
    assert_eq!(answer(&mut starter), Reply::Done);
    let mut lane = home.peer();
    let other = home.first.open(&home.at("file")).expect("opens");
    for owner in [LockOwner::Description, LockOwner::Whole] {
        for waited_for in [false, true] {
            let handle = home.first.open(&home.at("file")).expect("opens");
            // In the place of a placeholder.
            let placeholder = home.at("placeholder");
            fs::write(&placeholder, "").expect("writes");
            let watch = inotify::add_watch(&ends, &placeholder, inotify::WatchFlags::DELETE_SELF);
            let held = Lock {
                watch: watch.expect("is watched"),
                ..lock(handle, owner, 0, EXCLUSIVE)
            };
            assert_eq!(reply(&mut lane, Request::Lock(held)), Reply::Done);
            let wanted = lock(other, owner, 0, EXCLUSIVE);
            assert_eq!(
                reply(&mut lane, Request::Lock(wanted)),
                Reply::Failed(EAGAIN)
            );
            let mut waiter = home.peer();
            if waited_for {
                waiter.tell(
                    &Request::Lock(Lock {
                        wait: true,
                        ..wanted
                    }),
                    &[],
                );
                is_silent(&mut waiter);
            }
            fs::remove_file(&placeholder).expect("is there");
            if waited_for {
                assert_eq!(answer(&mut waiter), Reply::Done);
            } else {
                // At once: nobody who has ended is in the way.
                assert_eq!(reply(&mut lane, Request::Lock(wanted)), Reply::Done);
            }
            let again = reply(&mut lane, Request::Lock(held));
            let refused = [Reply::Failed(EBADF), Reply::Failed(EAGAIN)];
            assert!(refused.contains(&again), "{again:?}: it is over");
            let freed = lock(other, owner, 0, None);
            assert_eq!(reply(&mut lane, Request::Lock(freed)), Reply::Done);
            let close = Request::Close(Close { handle });
            assert_eq!(reply(&mut lane, close), Reply::Done);
        }
    }
}

#[test]
fn more_pieces_than_there_may_be_are_refused() {
    let mut home = Home::new();
    let handle = home.first.open(&home.at("file")).expect("opens");
    let (_a, one) = home.process(1);
    let begin = Instant::now();
    let refused = (0..100_000u64).find(|number| {
        let answer = reply(&mut home.first, exclusive(handle, one, 2 * number));
        assert!(begin.elapsed() < 3 * DEADLINE, "{number} locks");
        answer == Reply::Failed(ENOLCK)
    });
    assert_eq!(refused, Some(16384));
}
