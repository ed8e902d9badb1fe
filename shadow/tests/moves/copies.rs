//! Copies of a job: only the newest is served, whatever becomes of the others.

use super::*;
use journal::{Durability, Journal, Settings};
use shadow::State;

const SUPERSEDED: &str = "a newer copy of the job has begun";
const APPEND: &[u8] = b"+\n";

fn journals(folder: &Path) -> Journals {
    Journals::new(&folder.join("journals"), Durability::Kill).expect("a folder")
}

fn journalled(allowed: Allowed, folder: &Path) -> Sessions {
    Sessions::journalled(allowed, TOKEN, Limits::default(), journals(folder)).expect("allowed")
}

fn plain(allowed: Allowed, _: &Path) -> Sessions {
    Sessions::new(allowed, TOKEN, Limits::default())
}

/// Sessions that another shadow goes on with.
fn kept(allowed: Allowed, folder: &Path) -> Sessions {
    let sessions = journalled(allowed, folder);
    let state = State::open(&folder.join("state")).expect("a folder");
    sessions.kept(state, None).expect("are had again")
}

fn mark(peer: &mut Peer) -> Vec<u8> {
    let (reply, state) = peer.ask(&Request::Mark(Mark {}), &[]);
    assert_eq!(reply, Reply::Done);
    let settle = Request::Settle(Settle { committed: true });
    assert_eq!(peer.ask(&settle, &[]).0, Reply::Done);
    state
}

fn append(peer: &mut Peer, handle: u64) {
    let write = Request::Write(Write { handle, offset: 0 });
    let reply = peer.ask(&write, APPEND).0;
    assert!(matches!(reply, Reply::Written(_)), "{reply:?}");
}

/// A copy with a log that it appends to, and its state when there was one line in it.
fn copy_with_log(home: &Home) -> (Peer, u64, u64, Vec<u8>) {
    let (mut peer, session) = home.peer(0, 3);
    let log = peer.open(&home.at("log")).expect("opens");
    let append_only = Request::SetAppend(SetAppend {
        handle: log,
        append: true,
    });
    assert_eq!(peer.ask(&append_only, &[]).0, Reply::Done);
    append(&mut peer, log);
    let state = mark(&mut peer);
    append(&mut peer, log);
    (peer, session, log, state)
}

/// What the shadow knows of its sessions becomes this, when these have ended: as if it had been killed before.
fn becomes(state: &Path, copied: &Path) {
    let ended = Instant::now() + Duration::from_secs(20);
    while fs::read_dir(state.join("sessions")).expect("lists").count() > 0 {
        assert!(Instant::now() < ended, "a session does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::remove_dir_all(state).expect("removes");
    fs::rename(copied, state).expect("renames");
}

/// Nobody has one of these journals any more.
fn are_free(journals: &Path) {
    let ended = Instant::now() + Duration::from_secs(20);
    for entry in fs::read_dir(journals).expect("lists") {
        let path = entry.expect("an entry").path();
        loop {
            match Journal::open_existing(&path, &Settings::default()) {
                Ok(journal) => break drop(journal.map(Journal::close)),
                Err(error) => assert!(Instant::now() < ended, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Why nobody is served who says this.
fn refused(home: &Home, session: u64, incarnation: u64) -> Option<String> {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let sessions = home.sessions.clone();
    std::thread::spawn(move || serve_stream(&mut theirs, &sessions));
    let hello = Hello::new(Role::Shim, TOKEN, session, incarnation);
    Peer::new(ours).hello(&hello).err()
}

/// The number of the copy that goes on.
fn goes_on(home: &Home, state: &[u8], others: Others) -> (Peer, u64, u64) {
    let (mut peer, session) = home.peer(0, 0);
    let (reply, _) = peer.ask(&Request::Resume(Resume { others }), state);
    let Reply::Number(incarnation) = reply else {
        panic!("{reply:?}")
    };
    (peer, session, incarnation)
}

#[test]
fn a_copy_that_is_there_yet_is_not_served_when_a_newer_one_has_begun() {
    for (sessions, others, left) in [
        (plain as fn(Allowed, &Path) -> Sessions, Others::Keep, 3),
        (journalled, Others::RollBack, 2),
        (kept, Others::RollBack, 2),
    ] {
        let home = Home::with(sessions);
        let (mut old, session, log, state) = copy_with_log(&home);
        // One more of its streams waits for a lock that somebody else has.
        let (mut holder, _) = home.peer(0, 0);
        let locked = holder.open(&home.at("locked")).expect("opens");
        let lock = |handle| {
            Request::Lock(Lock {
                handle,
                mode: Some(LockMode::Exclusive),
                owner: LockOwner::Description,
                span: Span::ALL,
                wait: true,
                watch: 0,
            })
        };
        assert_eq!(holder.ask(&lock(locked), &[]).0, Reply::Done);
        let (mut waiter, _) = home.peer(session, 0);
        let waited = waiter.open(&home.at("locked")).expect("opens");
        waiter.tell(&lock(waited), &[]);
        let (mut new, _, incarnation) = goes_on(&home, &state, others);
        assert_eq!(incarnation, 2);
        // Of the old one nothing is served: on streams that it had, or on others.
        for peer in [&mut old, &mut waiter] {
            let end = std::io::Read::read(&mut peer.stream, &mut [0; 1 << 10]);
            assert!(end.is_ok(), "it ends: {end:?}");
            let head = wire::Head {
                body_len: 0,
                data_len: 0,
                number: 99,
                kind: 0,
                flags: 0,
            };
            let sent = std::io::Write::write(&mut peer.stream, &head.to_bytes());
            assert!(sent.is_err(), "nobody reads it: {sent:?}");
        }
        let why = refused(&home, session, 0).expect("is not served");
        assert!(
            why.contains(SUPERSEDED) && why.contains("(copy 1)"),
            "{why}"
        );
        append(&mut new, log);
        let lines = fs::read(home.at("log")).expect("is there");
        assert_eq!(lines, APPEND.repeat(left));
    }
}

/// The number stands in the journal: whatever else a shadow knows of an older copy, it does not serve that.
#[test]
fn an_older_copy_that_a_shadow_knows_is_not_served_either() {
    let home = Home::with(kept);
    let (old, session, log, state) = copy_with_log(&home);
    // What the shadow would have if it were killed now.
    let copied = home.at("copied");
    let names = |of: &Path| of.join(format!("sessions/{session:016x}"));
    fs::create_dir_all(names(&copied)).expect("makes");
    for name in ["token", &format!("sessions/{session:016x}/log")] {
        let from = home.at("state").join(name);
        if from.exists() {
            fs::copy(from, copied.join(name)).expect("copies");
        }
    }
    let Home {
        directory,
        sessions,
    } = home;
    drop((old, sessions));
    let shadow = |sessions: fn(Allowed, &Path) -> Sessions| {
        let mut allowed = Allowed::none();
        let path = directory.path().to_owned();
        allowed.allow(path, true).expect("allowed");
        Arc::new(sessions(allowed, directory.path()))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut home = Home {
        directory: folder,
        sessions: shadow(journalled),
    };
    // Another shadow, twice.
    for expected in [2, 3] {
        let (mut new, _, incarnation) = goes_on(&home, &state, Others::RollBack);
        assert_eq!(incarnation, expected);
        append(&mut new, log);
        mark(&mut new);
        drop(new);
        home.sessions = shadow(journalled);
    }
    drop(std::mem::replace(&mut home.sessions, shadow(plain)));
    are_free(&directory.path().join("journals"));
    let state = directory.path().join("state");
    becomes(&state, &copied);
    home.sessions = shadow(kept);
    let why = refused(&home, session, 0).expect("is not served");
    assert!(why.contains(SUPERSEDED) && why.contains("copy 3"), "{why}");
    let lines = fs::read(directory.path().join("log")).expect("is there");
    assert_eq!(lines, APPEND.repeat(2));
}

#[test]
fn of_two_sessions_that_were_kept_only_that_of_the_newer_copy_goes_on() {
    let home = Home::with(kept);
    let (_old, session, _, state) = copy_with_log(&home);
    let log_of = |session: u64| home.at(&format!("state/sessions/{session:016x}/log"));
    let before = fs::read(log_of(session)).expect("is there");
    let (_new, newer, incarnation) = goes_on(&home, &state, Others::RollBack);
    // Killed before the old one's log was removed.
    let copied = home.at("copied");
    for (session, bytes) in [
        (session, before),
        (newer, fs::read(log_of(newer)).expect("is there")),
    ] {
        let folder = copied.join(format!("sessions/{session:016x}"));
        fs::create_dir_all(&folder).expect("makes");
        fs::write(folder.join("log"), bytes).expect("writes");
    }
    let directory = home.directory;
    drop((_old, _new, home.sessions));
    let state = directory.path().join("state");
    becomes(&state, &copied);
    are_free(&directory.path().join("journals"));
    let mut allowed = Allowed::none();
    allowed
        .allow(directory.path().to_owned(), true)
        .expect("allowed");
    let sessions = Arc::new(kept(allowed, directory.path()));
    let home = Home {
        directory,
        sessions,
    };
    let why = refused(&home, session, 0).expect("is not served");
    assert!(why.contains(SUPERSEDED), "{why}");
    assert_eq!(refused(&home, newer, incarnation), None);
}

#[test]
fn who_says_that_it_is_another_copy_is_not_served() {
    let home = Home::with(journalled);
    let (_peer, session, _, state) = copy_with_log(&home);
    assert_eq!(refused(&home, session, 1), None);
    let why = refused(&home, session, 2).expect("is not served");
    assert!(
        why.contains("copy 2") && why.contains("expected copy 1"),
        "{why}"
    );
    let (_new, session, incarnation) = goes_on(&home, &state, Others::RollBack);
    assert_eq!(refused(&home, session, incarnation), None);
    let why = refused(&home, session, 1).expect("is not served");
    assert!(
        why.contains("copy 1") && why.contains("expected copy 2"),
        "{why}"
    );
}

/// Several that restart a job at once: one after the other goes on, and the last is served.
#[test]
fn of_copies_that_begin_at_once_one_is_served() {
    for (sessions, others) in [
        (plain as fn(Allowed, &Path) -> Sessions, Others::Keep),
        (journalled, Others::RollBack),
    ] {
        let home = Home::with(sessions);
        let (_old, _, log, state) = copy_with_log(&home);
        // Who is superseded before it is told that it goes on finds its stream ended.
        let begin = || {
            let (mut peer, session) = home.peer(0, 0);
            peer.tell(&Request::Resume(Resume { others }), &state);
            let mut head = [0; wire::HEAD_LEN];
            std::io::Read::read_exact(&mut peer.stream, &mut head).ok()?;
            let head = wire::Head::read(&head).expect("is a head");
            let mut body = vec![0; head.body_len as usize];
            std::io::Read::read_exact(&mut peer.stream, &mut body).ok()?;
            match Reply::decode(head.kind, &body).expect("an answer") {
                Reply::Number(incarnation) => Some((peer, session, incarnation)),
                Reply::Refused(refusal) if refusal.reason.contains(SUPERSEDED) => None,
                other => panic!("{other:?}"),
            }
        };
        let mut all: Vec<_> = std::thread::scope(|scope| {
            let begun: Vec<_> = (0..6).map(|_| scope.spawn(begin)).collect();
            let ends = begun.into_iter().map(|one| one.join().expect("ends"));
            ends.flatten().collect()
        });
        all.sort_by_key(|(_, _, incarnation)| *incarnation);
        assert!(all.is_sorted_by(|(_, _, one), (_, _, next)| one < next));
        assert_eq!(all.last().map(|(_, _, incarnation)| *incarnation), Some(7));
        let (mut last, session, incarnation) = all.pop().expect("six");
        append(&mut last, log);
        assert_eq!(refused(&home, session, incarnation), None);
        for (_, session, incarnation) in all {
            let why = refused(&home, session, incarnation).expect("is not served");
            assert!(why.contains(SUPERSEDED), "{why}");
        }
    }
}

/// Who does not know of numbers is told that it is done, as before.
#[test]
fn an_older_peer_is_told_that_its_job_goes_on() {
    let home = Home::with(journalled);
    let (old, _, _, state) = copy_with_log(&home);
    drop(old);
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let sessions = home.sessions.clone();
    std::thread::spawn(move || serve_stream(&mut theirs, &sessions));
    let mut hello = Hello::new(Role::Starter, TOKEN, 0, 0);
    hello.versions = (2, 3);
    let mut peer = Peer::new(ours);
    peer.hello(&hello).expect("is welcome");
    let others = Others::RollBack;
    let (reply, _) = peer.ask(&Request::Resume(Resume { others }), &state);
    assert_eq!(reply, Reply::Done);
}

/// What is no state, or of a session that has files open, ends nobody.
#[test]
fn a_state_that_is_refused_ends_no_copy() {
    let home = Home::with(journalled);
    let (mut old, _, log, state) = copy_with_log(&home);
    let told = home.resumed(&state[..state.len() - 1], Others::RollBack);
    assert!(told.map(|_| ()).expect_err("refused").contains("damaged"));
    let (mut busy, _) = home.peer(0, 0);
    busy.open(&home.at("other")).expect("opens");
    let others = Others::RollBack;
    let resume = Request::Resume(Resume { others });
    busy.tell(&resume, &state);
    let (head, body, _) = busy.receive();
    let reply = Reply::decode(head.kind, &body).expect("an answer");
    assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    append(&mut old, log);
    assert_eq!(
        fs::read(home.at("log")).expect("is there"),
        APPEND.repeat(3)
    );
}

/// Who has kept a copy going goes on with it only as long as nobody else has, and ends nobody.
#[test]
fn who_has_lost_a_job_to_somebody_else_does_not_go_on_with_it() {
    for (sessions, others) in [
        (plain as fn(Allowed, &Path) -> Sessions, Others::Keep),
        (journalled, Others::RollBack),
    ] {
        let home = Home::with(sessions);
        let (old, _, log, state) = copy_with_log(&home);
        drop(old);
        let take_up = |starter, takes| {
            let (mut peer, session) = home.peer(0, 0);
            let request = Request::TakeUp(wire::TakeUp {
                others,
                starter,
                takes,
            });
            peer.tell(&request, &state);
            let (head, body, _) = peer.receive();
            match Reply::decode(head.kind, &body).expect("an answer") {
                Reply::Number(incarnation) => Ok((peer, session, incarnation)),
                Reply::Refused(refusal) => Err(refusal.reason.to_owned()),
                other => panic!("{other:?}"),
            }
        };
        // Of a first copy nobody knows who has begun it.
        let (second, _, incarnation) = take_up(5, false).expect("nobody else has it");
        assert_eq!(incarnation, 2);
        drop(second);
        // Whether or not he was told of that one.
        let (third, _, incarnation) = take_up(5, false).expect("it is his");
        assert_eq!(incarnation, 3);
        drop(third);
        let (mut fourth, session, incarnation) = take_up(6, true).expect("is taken");
        assert_eq!(incarnation, 4);
        let why = take_up(5, false).map(drop).expect_err("it is not his");
        assert!(why.contains(SUPERSEDED), "{why}");
        assert_eq!(refused(&home, session, 4), None, "it has ended nobody");
        append(&mut fourth, log);
        drop(fourth);
        // Nor when that has ended.
        let why = take_up(5, false).map(drop).expect_err("it is not his");
        assert!(why.contains(SUPERSEDED), "{why}");
        assert_eq!(take_up(6, false).expect("it is his").2, 5);
    }
}

/// Epochs of a journal that is gone are not taken for those of the one that was begun in its place.
#[test]
fn a_job_that_goes_on_behind_another_journal_is_another_one() {
    let home = Home::with(journalled);
    let (mut old, _, log, state) = copy_with_log(&home);
    mark(&mut old);
    assert_eq!(old.ask(&Request::Complete(Complete {}), &[]).0, Reply::Done);
    drop(old);
    let journals = home.at("journals");
    let ended = Instant::now() + Duration::from_secs(20);
    while fs::read_dir(&journals).expect("lists").count() > 0 {
        assert!(Instant::now() < ended, "its journal stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut new, _, _) = goes_on(&home, &state, Others::Keep);
    append(&mut new, log);
    for _ in 0..3 {
        mark(&mut new);
    }
    drop(new);
    let why = home.resumed(&state, Others::RollBack).map(drop);
    let why = why.expect_err("there is nothing to go back by");
    assert!(
        why.contains("is not there: the job has ended well"),
        "{why}"
    );
}
