//! Jobs that go on on other machines.

use super::*;

fn migrate(who: u64) -> Event {
    asked(
        who,
        Command::Migrate {
            to: "there".to_owned(),
        },
    )
}

#[test]
fn a_job_that_moves_goes_on_elsewhere_or_stays() {
    let mut life = running(POLICY);
    let mut refused_once = life.clone();
    assert_eq!(
        life.step(migrate(1), at(2)),
        [Action::Checkpoint { leaves: true }]
    );
    assert_eq!(life.step(Event::Checkpointed(Ok(())), at(3)), []);
    assert_eq!(life.step(KILLED, at(4)), [Action::Restart]);
    assert_eq!(
        (life.state(), life.is_leaving()),
        (State::Restarting, false)
    );
    let mut lost = life.clone();
    assert_eq!(life.step(Event::Runs, at(5)), [done(1)]);
    assert_eq!(life.state(), State::Running);
    // It does not begin anywhere.
    let not = lost.step(Event::Ended(End::NotBegun(5)), at(5));
    assert!(
        matches!(
            &not[..],
            [
                Action::Answer(Who(1), Answer::Refused(_)),
                Action::Leave(Leave::Held(_))
            ]
        ),
        "{not:?}"
    );
    // No image can be made: it stays.
    refused_once.step(migrate(1), at(2));
    let stays = refused_once.step(Event::Checkpointed(Err("socket".into())), at(3));
    assert_eq!(stays, [refused(1, "socket")]);
    assert_eq!(refused_once.state(), State::Running);
    // Who wants it to leave altogether is stronger.
    let mut both = running(POLICY);
    both.step(migrate(1), at(2));
    both.step(asked(2, vacate(None, false)), at(2));
    assert_eq!(both.step(Event::Checkpointed(Ok(())), at(3)), []);
    let left = both.step(KILLED, at(4));
    assert_eq!(left, [done(1), done(2), Action::Leave(Leave::Vacated)]);
    // It ends by itself meanwhile.
    let mut ended = running(POLICY);
    ended.step(migrate(1), at(2));
    assert_eq!(ended.step(Event::Ended(End::Exited(0)), at(3)), []);
    let over = ended.step(Event::Checkpointed(Err("gone".into())), at(3));
    assert_eq!(
        over,
        [
            refused(1, "the job has ended by itself"),
            Action::Leave(Leave::Completed(End::Exited(0)))
        ]
    );
}

#[test]
fn what_waits_for_a_machine_leaves_as_it_is_told() {
    let mut life = with_image();
    assert_eq!(life.step(KILLED, at(200)), [Action::Restart]);
    assert_eq!(life.step(asked(1, hold("x")), at(201)), []);
    let left = life.step(Event::Ended(End::Interrupted(15)), at(202));
    let held = Leave::Held(Hold::new("x".to_owned(), Hold::BY_USER));
    assert_eq!(left, [done(1), Action::Leave(held)]);
}

#[test]
fn a_job_that_wants_to_go_back_does_as_often_as_it_wants() {
    let mut life = running(POLICY);
    let none = refused(1, "there is no image of the job yet");
    assert_eq!(life.step(asked(1, Command::GoBack), at(2)), [none]);
    let mut life = with_image();
    for _ in 0..10 {
        let actions = life.step(asked(1, Command::GoBack), at(110));
        assert_eq!(actions, [Action::Kill, done(1)]);
        assert_eq!(life.step(KILLED, at(111)), [Action::Restart]);
        assert_eq!(life.wake_at(at(111)), None);
        assert_eq!(life.step(Event::Runs, at(112)), []);
    }
    // Killed by somebody else, it is counted.
    let mut times = 0;
    while life.step(KILLED, at(113)) == [Action::Restart] {
        life.step(Event::Runs, at(114));
        times += 1;
    }
    assert_eq!(times, POLICY.restarts_per_image);
}

#[test]
fn a_job_that_goes_back_while_an_image_is_made_goes_on_from_the_newest() {
    let mut life = with_image();
    life.step(asked(1, Command::Checkpoint), at(110));
    let actions = life.step(asked(2, Command::GoBack), at(111));
    assert_eq!(actions, [Action::AbandonCheckpoint, Action::Kill, done(2)]);
    assert_eq!(life.step(KILLED, at(112)), []);
    let abandoned = life.step(Event::Checkpointed(Err("ended".into())), at(112));
    assert_eq!(abandoned, [refused(1, "ended"), Action::Restart]);
}
