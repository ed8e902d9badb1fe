//! Sessions with an undo journal: going back to a mark, and what becomes of the journal of a job that is complete.

use super::*;
use journal::{Durability, Journal, Settings};

fn journalled(allowed: Allowed, folder: &Path) -> Sessions {
    let journals = Journals::new(&folder.join("journals"), Durability::Kill).expect("a folder");
    Sessions::journalled(allowed, TOKEN, Limits::default(), journals).expect("allowed")
}

#[test]
fn a_file_that_somebody_else_has_cut_is_refused_behind_an_undoing_too() {
    let home = Home::with(journalled);
    let mark = |peer: &mut Peer| {
        let (reply, state) = peer.ask(&Request::Mark(Mark {}), &[]);
        assert_eq!(reply, Reply::Done);
        let settle = Request::Settle(Settle { committed: true });
        assert_eq!(peer.ask(&settle, &[]).0, Reply::Done);
        state
    };
    for name in ["own", "other"] {
        fs::write(home.at(name), "0123456789").expect("writes");
    }
    let (mut old, _) = home.peer(0, 0);
    let own = old.open(&home.at("own")).expect("opens");
    old.open(&home.at("other")).expect("opens");
    let state = mark(&mut old);
    // The job's own cut is undone.
    let change = Request::Change(Change {
        place: Place { at: own, name: b"" },
        follow: true,
        what: What::Size(3),
    });
    let reply = old.ask(&change, &[]).0;
    assert!(matches!(reply, Reply::Attributes(now) if now.size == 3));
    drop(old);
    let whole = fs::read(home.at("other")).expect("is there");
    fs::write(home.at("other"), &whole[..4]).expect("cuts");
    let told = home.resumed(&state, Others::RollBack).map(|_| ());
    let told = told.expect_err("refused");
    assert!(
        told.contains("other is shorter than at the checkpoint (4 bytes, then 10)"),
        "{told}"
    );
    assert!(!told.contains("/own"), "{told}");
    fs::write(home.at("other"), &whole).expect("writes");
    drop(home.resumed(&state, Others::RollBack).expect("goes on"));
    assert_eq!(fs::read(home.at("own")).expect("is there"), whole);
}

/// The last image may turn out to be damaged: the one before it can be gone back to as long as there are two.
#[test]
fn a_checkpoint_that_is_killed_takes_no_image_its_mark() {
    let home = Home::with(journalled);
    let (mut job, session) = home.peer(0, 0);
    let folder = |number: usize| home.at(&format!("folder-{number}"));
    let mut states = vec![];
    for number in 0..5 {
        let name = folder(number);
        let made = make(name.as_os_str().as_encoded_bytes());
        assert_eq!(job.ask(&made, &[]).0, Reply::Done);
        let (mut checkpoint, _) = home.peer(session, 0);
        let (reply, state) = checkpoint.ask(&Request::Mark(Mark {}), &[]);
        assert_eq!(reply, Reply::Done);
        // The second and the fourth are killed before they say what has become of them.
        if number % 2 == 0 {
            let settle = Request::Settle(Settle { committed: true });
            assert_eq!(checkpoint.ask(&settle, &[]).0, Reply::Done);
            states.push(state);
        }
    }
    drop(job);
    let told = home.resumed(&states[0], Others::RollBack).map(|_| ());
    let told = told.expect_err("there are two newer images");
    assert!(told.contains("is not kept"), "{told}");
    drop(home.resumed(&states[1], Others::RollBack).expect("goes on"));
    let there: Vec<bool> = (0..5).map(|number| folder(number).exists()).collect();
    assert_eq!(there, [true, true, true, false, false]);
}

/// An image that the shadow is told of may still not count where it is kept: then there are those before it, and no others.
#[test]
fn marks_that_are_needed_stay_whatever_comes_of_the_next_image() {
    let home = Home::with(journalled);
    let (mut job, _) = home.peer(0, 0);
    let folder = |number: usize| home.at(&format!("folder-{number}"));
    let mut states: Vec<Vec<u8>> = vec![];
    let mark_of = |state: &Vec<u8>| shadow::mark_of(state).expect("a mark").1.0.to_le_bytes();
    for number in 0..6 {
        let name = folder(number);
        let made = make(name.as_os_str().as_encoded_bytes());
        assert_eq!(job.ask(&made, &[]).0, Reply::Done);
        let (reply, state) = job.ask(&Request::Mark(Mark {}), &[]);
        assert_eq!(reply, Reply::Done);
        // None of those behind the third counts; what there is not is passed over.
        let needed = states.iter().take(3).skip(1).map(mark_of);
        let needed = [u64::MAX.to_le_bytes()].into_iter().chain(needed);
        let needed: Vec<u8> = needed.flatten().collect();
        let settle = Request::Settle(Settle { committed: true });
        assert_eq!(job.ask(&settle, &needed).0, Reply::Done);
        states.push(state);
    }
    drop(job);
    let told = home.resumed(&states[0], Others::RollBack).map(|_| ());
    let told = told.expect_err("it is not needed");
    assert!(told.contains("is not kept"), "{told}");
    drop(home.resumed(&states[1], Others::RollBack).expect("goes on"));
    let there: Vec<bool> = (0..6).map(|number| folder(number).exists()).collect();
    assert_eq!(there, [true, true, false, false, false, false]);
}

/// How many journals are left when a session has ended that was marked and then asked for this.
fn journals_left(keep: bool, requests: &[Request<'_>]) -> usize {
    let home = Home::with(|allowed, folder| {
        let journals = Journals::new(&folder.join("journals"), Durability::Kill).expect("a folder");
        let journals = if keep { journals.kept() } else { journals };
        Sessions::journalled(allowed, TOKEN, Limits::default(), journals).expect("allowed")
    });
    let (mut peer, _) = home.peer(0, 0);
    let folder = home.at("folder");
    let make = make(folder.as_os_str().as_encoded_bytes());
    for request in [make, Request::Mark(Mark {})].iter().chain(requests) {
        assert_eq!(peer.ask(request, &[]).0, Reply::Done, "{request:?}");
    }
    drop(peer);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let journals = fs::read_dir(home.at("journals")).expect("lists");
        let all: Vec<PathBuf> = journals.map(|one| one.expect("an entry").path()).collect();
        // Nobody has it open any more.
        let is_closed = |path: &PathBuf| {
            // One that is being removed is nobody's to open.
            if path.extension().is_some() {
                return false;
            }
            let opened = Journal::open_existing(path, &Settings::default());
            matches!(opened, Ok(Some(_)))
        };
        if all.iter().all(is_closed) {
            return all.len();
        }
        assert!(Instant::now() < end, "the session does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_journal_of_a_complete_job_goes_unless_it_is_wanted() {
    let complete = Request::Complete(Complete {});
    assert_eq!(journals_left(false, &[]), 1, "there is an image");
    assert_eq!(journals_left(false, &[complete]), 0);
    assert_eq!(journals_left(false, &[complete, complete]), 0);
    assert_eq!(
        journals_left(false, &[complete, Request::Mark(Mark {})]),
        1,
        "there is another image"
    );
    assert_eq!(journals_left(true, &[complete]), 1, "--keep-journals");
}
